"""Models that all start from the same point, and share nothing."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from surefoot._base.randomness import global_random

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module


class Starts:
    """Calls a factory of models, each time after torch was seeded, and makes sure that runs do not share weights.

    A factory that gives the same model at every call, or a new one around the same layers, is asked once: what it gives
    then is copied for every run, so that none of them trains the weights of another.

    Args:
        factory: Gives a model.
        seed: Of torch's random numbers.
    """

    def __init__(self, factory: Callable[[], Module], seed: int) -> None:
        self.factory, self.seed = factory, seed
        self._pristine: Module | None = None
        self._checked = False

    def __call__(self) -> Module:
        """A new model with the initial parameters."""
        if self._pristine is not None:
            return copy.deepcopy(self._pristine)
        model = self._new_model()
        if not self._checked:
            before = copy.deepcopy(model)
            if _are_shared(model, second := self._new_model()):
                self._pristine = before
                return copy.deepcopy(before)
            _check_equal(model, second)
            self._checked = True
        return model

    def __getstate__(self) -> dict[str, Any]:
        """The state without what was learnt about the factory: another process checks it anew."""
        return {**vars(self), "_pristine": None, "_checked": False}

    def _new_model(self) -> Module:
        import torch

        with global_random, torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            torch.manual_seed(self.seed)
            model = self.factory()
        if not isinstance(model, torch.nn.Module):
            raise TypeError(f"model_factory must give a torch.nn.Module, got {model!r}")
        if not any(p.requires_grad for p in model.parameters()):
            raise ValueError("model_factory must give a model with parameters to train, got one without")
        return model


def _changed(model: Module) -> dict[str, Tensor]:
    """What a run changes of a model: parameters that are trained, and buffers."""
    return {name: p for name, p in model.named_parameters() if p.requires_grad} | dict(model.named_buffers())


def _are_shared(first: Module, second: Module) -> bool:
    places = {value.untyped_storage().data_ptr() for value in _changed(first).values() if value.numel()}
    return any(value.untyped_storage().data_ptr() in places for value in _changed(second).values() if value.numel())


def _check_equal(first: Module, second: Module) -> None:
    import torch

    values = _changed(second)
    for name, value in _changed(first).items():
        beside = values.get(name)
        if beside is None or value.shape != beside.shape or not torch.equal(value.detach(), beside.detach()):
            if bool(torch.isnan(value).any()):
                continue
            raise ValueError(
                f"model_factory must give the same model at every call, got two that differ in {name!r}: draw its "
                "parameters with torch's random numbers, which are seeded with model_seed before each call"
            )
