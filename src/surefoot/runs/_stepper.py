"""Steps of any torch training, with what the theory asks of each."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from surefoot._base.randomness import global_random
from surefoot.optim import LossOptimizer, ModelBased
from surefoot.runs._types import Floats


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
        scheduler: Of torch, for this optimizer: asked for the rate of the next step after every step.
        clip: The largest norm of a gradient that is stepped with.
        accumulate: Batches of a step; its loss is their mean.
        autocast: ``"bfloat16"`` or ``"float16"``: forward passes in mixed precision, the latter with scaled losses.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        factors: Floats | None,
        seed: int,
        *,
        scheduler: Any = None,
        clip: float | None = None,
        accumulate: int = 1,
        autocast: str | None = None,
    ) -> None:
        self.model, self.optimizer, self.factors = model, optimizer, factors
        self.scheduler, self.clip, self.accumulate, self.autocast = scheduler, clip, accumulate, autocast
        self.parameters: list[Tensor] = [p for p in model.parameters() if p.requires_grad]
        self._lrs = [group["lr"] for group in optimizer.param_groups]
        self._gpus = sorted({p.device.index for p in self.parameters if p.device.type == "cuda"})
        self._scaler = None
        if autocast == "float16":
            self._scaler = torch.amp.GradScaler(self.parameters[0].device.type)
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
        try:
            yield self.model
        finally:
            _switch(self.optimizer, "train")

    def step(self, number: int, compute: Callable[[], Tensor]) -> Reading:
        """Take a step: ``compute()`` gives the loss of the next batch, to differentiate."""
        if self.factors is not None:
            for group, lr in zip(self.optimizer.param_groups, self._lrs, strict=True):
                group["lr"] = lr * float(self.factors[number])
        self.optimizer.zero_grad()
        loss = self._differentiated(compute)
        detached = loss.double().reshape(())
        if self._scaler is not None and not self._unscaled():
            nothing = torch.zeros_like(detached)
            return Reading(detached, nothing, nothing, nothing)  # a gradient too large for float16: no step
        try:
            reading = Reading(detached, *self._taken(loss))
        except RuntimeError as error:
            if "without overflow" not in str(error):
                raise
            infinite = torch.full_like(detached, torch.inf)  # a rate that the parameters' numbers do not reach to
            return Reading(detached, infinite, infinite, infinite)
        finally:
            if self._scaler is not None:
                self._scaler.update()  # the step was ours to take, with the loss
        if self.scheduler is not None:
            by_loss = isinstance(self.scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau)
            self.scheduler.step(detached) if by_loss else self.scheduler.step()
        return reading

    def _taken(self, loss: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Let the optimizer take its step, and return ‖g‖², size and index."""
        if not isinstance(self.optimizer, LossOptimizer):
            return self._foreign_step()
        self.optimizer.step(loss=loss)
        size, delta = self.optimizer.last_step
        return self.optimizer.last_grad_sq, size.max(), delta

    def _differentiated(self, compute: Callable[[], Tensor]) -> Tensor:
        """Compute the loss of a step, and leave its gradient in the parameters."""
        total: Tensor | None = None
        for _ in range(self.accumulate):
            if self.autocast is None:
                loss = compute()
            else:
                with torch.autocast(self.parameters[0].device.type, dtype=getattr(torch, self.autocast)):
                    loss = compute()
            if self.accumulate > 1:
                loss = loss / self.accumulate
            scaled = loss if self._scaler is None else self._scaler.scale(loss)
            scaled.backward()  # type: ignore[no-untyped-call]
            total = loss.detach() if total is None else total + loss.detach()
        assert total is not None
        return total

    def _unscaled(self) -> bool:
        """Bring the gradients to their own size; False if one is not finite, which makes the scale smaller."""
        assert self._scaler is not None
        self._scaler.unscale_(self.optimizer)
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        is_finite = bool(torch.isfinite(_norm_sq(gradients)))
        if not is_finite:
            self._scaler.update()
        return is_finite

    def _foreign_step(self) -> tuple[Tensor, Tensor, Tensor]:
        """Step with an optimizer that is not ours, and return ‖g‖², size and index."""
        moving = [p for p in self.parameters if p.grad is not None]
        gradients = [p.grad for p in moving if p.grad is not None]
        grad_sq = _norm_sq(gradients)
        groups = self.optimizer.param_groups
        if self.clip is None and is_plain_sgd(self.optimizer) and len(groups) == 1:
            self.optimizer.step()
            rate = torch.as_tensor(groups[0]["lr"], dtype=torch.float64, device=grad_sq.device)
            return grad_sq, rate, 0.5 * rate * grad_sq
        before = [p.detach().clone() for p in moving]
        gradients = [g.clone() for g in gradients]  # before hooks of the optimizer change them
        if self.clip is not None:
            torch.nn.utils.clip_grad_norm_(moving, self.clip)
        self.optimizer.step()
        with torch.no_grad():
            moves = _difference(before, moving)
            inner = torch.stack([(m * g).sum(dtype=torch.float64) for m, g in zip(moves, gradients, strict=True)]).sum()
            size = (_norm_sq(moves) / grad_sq).sqrt()
            # The midpoint of the interval that holds the index of every convex model with this step.
            size = torch.where(size.isnan(), torch.zeros_like(size), size)  # no gradient, and no move
            return grad_sq, size, (0.5 * inner).clamp_min(0.0)

    @torch.no_grad()
    def distance(self, start: list[Tensor]) -> Tensor:
        """‖x_t − x_1‖."""
        return _norm_sq(_difference(self.parameters, start)).sqrt()

    def state_dict(self) -> dict[str, Any]:
        """Model, optimizer, random numbers, and the places of scheduler and scaler."""
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "random": list(self._random),
        }
        if self.scheduler is not None:
            state["scheduler"] = self.scheduler.state_dict()
        if self._scaler is not None:
            state["scaler"] = self._scaler.state_dict()
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self._random = [tensor.cpu() for tensor in state["random"]]
        if self.scheduler is not None:
            self.scheduler.load_state_dict(state["scheduler"])
        if self._scaler is not None:
            self._scaler.load_state_dict(state["scaler"])

    def _random_states(self) -> list[Tensor]:
        """The states of the CPU and of the model's GPUs, whatever their numbers are when it is taken up again."""
        return [torch.get_rng_state(), *(torch.cuda.get_rng_state(gpu) for gpu in self._gpus)]


def certifies(optimizer: Optimizer, model: nn.Module) -> bool:
    """Whether the indices may stand in a bound: Euclidean steps without averaging, clipping, weight decay and hooks."""
    if any(group.get("weight_decay") for group in optimizer.param_groups):
        return False
    if is_hooked(optimizer) or _bends_gradients(model):
        return False
    return optimizer.certifies if isinstance(optimizer, ModelBased) else is_plain_sgd(optimizer)


def is_plain_sgd(optimizer: Optimizer) -> bool:
    """Whether an optimizer is ``torch.optim.SGD`` without momentum, decay and hooks: then ½α‖g‖² is its index."""
    return (
        type(optimizer) is torch.optim.SGD
        and not is_hooked(optimizer)
        and not any(group["momentum"] or group["weight_decay"] or group["maximize"] for group in optimizer.param_groups)
    )


def is_hooked(optimizer: Optimizer) -> bool:
    """Whether somebody else has a hand in an optimizer's steps, by hooks of torch or by another ``step``."""
    own_step, module = vars(optimizer).get("step"), sys.modules["torch.optim.optimizer"]
    replaced = own_step is not None and not hasattr(own_step, "_wrapped_by_lr_sched")  # a scheduler wraps it to count
    return replaced or any(
        (
            optimizer._optimizer_step_pre_hooks,
            optimizer._optimizer_step_post_hooks,
            getattr(module, "_global_optimizer_pre_hooks", None),
            getattr(module, "_global_optimizer_post_hooks", None),
        )
    )


def _bends_gradients(model: nn.Module) -> bool:
    """Whether hooks of modules or parameters may change the gradients."""
    if any(part._backward_hooks or part._backward_pre_hooks for part in model.modules()):
        return True
    for p in model.parameters():
        after = getattr(p, "_post_accumulate_grad_hooks", None) or {}
        # Optimizers that listen for their loss have hooks there, which change nothing.
        if p._backward_hooks or any(not hook.__module__.startswith("surefoot.") for hook in after.values()):
            return True
    return False


def _difference(left: list[Tensor], right: list[Tensor]) -> Any:
    return torch._foreach_sub(left, right)  # torch's stub knows only the scalar form


def _norm_sq(tensors: Any) -> Tensor:
    return torch.stack([norm.double() for norm in torch._foreach_norm(list(tensors))]).square().sum()


@contextmanager
def _forked() -> Iterator[None]:
    """Leave torch's random numbers as they were; other threads wait."""
    with global_random, torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        yield


def _switch(optimizer: Optimizer, mode: str) -> None:
    """Call ``optimizer.train()`` or ``optimizer.eval()``, which schedule-free optimizers have."""
    getattr(optimizer, mode, lambda: None)()
