"""Steps of any torch training, with what the theory asks of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from surefoot.optim import ModelBased
from surefoot.study._runs import Floats


class Reading(NamedTuple):
    """Numbers of one step, as 0-d tensors on the model's device: reading them is what would wait for it."""

    loss: Tensor
    grad_sq: Tensor
    size: Tensor
    delta: Tensor


class Stepper:
    """A model and its optimizer, with random numbers of their own: runs that take turns do not disturb each other.

    The indices δ_t are those of a surefoot optimizer; ½α‖g‖² for plain ``torch.optim.SGD``; and for any other
    ½⟨g_t, x_t − x_{t+1}⟩, at least 0, a heuristic. The size of a step that is not a multiple of g is that of one along
    g that is as long.

    Args:
        model: In its initial state.
        optimizer: Of the model's parameters.
        factors: Of the rates, one a step; None for constant ones.
        seed: Of the random numbers that training draws (dropout).
    """

    def __init__(self, model: nn.Module, optimizer: Optimizer, factors: Floats | None, seed: int) -> None:
        self.model, self.optimizer, self.factors = model, optimizer, factors
        self.parameters: list[Tensor] = [p for p in model.parameters() if p.requires_grad]
        self._lrs = [group["lr"] for group in optimizer.param_groups]
        self._gpus = sorted({p.device.index for p in self.parameters if p.device.type == "cuda"})
        _switch(optimizer, "train")
        with _forked():
            torch.manual_seed(seed)
            self._random = self._random_states()

    @contextmanager
    def training(self) -> Iterator[None]:
        """Steps are taken inside of this context: training mode, and the run's own random numbers."""
        with _forked():
            for state, gpu in zip(self._random, (None, *self._gpus), strict=True):
                torch.set_rng_state(state) if gpu is None else torch.cuda.set_rng_state(state, gpu)
            self.model.train()
            yield
            self._random = self._random_states()

    @contextmanager
    def evaluating(self) -> Iterator[nn.Module]:
        """The model at the point to evaluate, which is not where gradients are taken if the optimizer averages."""
        _switch(self.optimizer, "eval")
        yield self.model
        _switch(self.optimizer, "train")

    def step(self, number: int, compute: Callable[[], Tensor]) -> Reading:
        """Take a step: ``compute()`` gives the loss to differentiate."""
        if self.factors is not None:
            for group, lr in zip(self.optimizer.param_groups, self._lrs, strict=True):
                group["lr"] = lr * float(self.factors[number])
        self.optimizer.zero_grad()
        loss = compute()
        loss.backward()  # type: ignore[no-untyped-call]
        detached = loss.detach().double().reshape(())
        if isinstance(self.optimizer, ModelBased):
            self.optimizer.step(loss=loss)
            size, delta = self.optimizer.last_step
            return Reading(detached, self.optimizer.last_grad_sq, size.max(), delta)
        return Reading(detached, *self._foreign_step())

    def _foreign_step(self) -> tuple[Tensor, Tensor, Tensor]:
        """Step with an optimizer that is not ours: ‖g‖², size and index."""
        moving = [p for p in self.parameters if p.grad is not None]
        gradients = [p.grad for p in moving if p.grad is not None]
        grad_sq = _norm_sq(gradients)
        groups = self.optimizer.param_groups
        if is_plain_sgd(self.optimizer) and len(groups) == 1:
            self.optimizer.step()
            rate = torch.as_tensor(groups[0]["lr"], dtype=torch.float64, device=grad_sq.device)
            return grad_sq, rate, 0.5 * rate * grad_sq
        before = [p.detach().clone() for p in moving]
        gradients = [g.clone() for g in gradients]
        self.optimizer.step()
        with torch.no_grad():
            moves = _difference(before, moving)
            inner = torch.stack([(m * g).sum(dtype=torch.float64) for m, g in zip(moves, gradients, strict=True)]).sum()
            size = (_norm_sq(moves) / grad_sq).sqrt()
            # The midpoint of the interval that holds the index of every convex model with this step.
            return grad_sq, size.nan_to_num(0.0), (0.5 * inner).clamp_min(0.0)

    @torch.no_grad()
    def distance(self, start: list[Tensor]) -> Tensor:
        """‖x_t − x_1‖."""
        return _norm_sq(_difference(self.parameters, start)).sqrt()

    def state_dict(self) -> dict[str, Any]:
        """Model, optimizer and random numbers."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "random": list(self._random),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self._random = [tensor.cpu() for tensor in state["random"]]

    def _random_states(self) -> list[Tensor]:
        """Of the CPU and of the GPUs of the model, whatever their numbers are when it is taken up again."""
        return [torch.get_rng_state(), *(torch.cuda.get_rng_state(gpu) for gpu in self._gpus)]


def certifies(optimizer: Optimizer) -> bool:
    """Whether the indices may stand in a bound: Euclidean steps without averaging, clipping and weight decay."""
    return optimizer.certifies if isinstance(optimizer, ModelBased) else is_plain_sgd(optimizer)


def is_plain_sgd(optimizer: Optimizer) -> bool:
    """Whether it is ``torch.optim.SGD`` without momentum and decay: then ½α‖g‖² is its index."""
    return type(optimizer) is torch.optim.SGD and not any(
        group["momentum"] or group["weight_decay"] or group["maximize"] for group in optimizer.param_groups
    )


def _difference(left: list[Tensor], right: list[Tensor]) -> Any:
    return torch._foreach_sub(left, right)  # torch's stub knows only the scalar form


def _norm_sq(tensors: Any) -> Tensor:
    return torch.stack([norm.double() for norm in torch._foreach_norm(list(tensors))]).square().sum()


def _forked() -> Any:
    return torch.random.fork_rng(devices=range(torch.cuda.device_count()))


def _switch(optimizer: Optimizer, mode: str) -> None:
    """Call ``optimizer.train()`` or ``optimizer.eval()``, which schedule-free optimizers have."""
    getattr(optimizer, mode, lambda: None)()
