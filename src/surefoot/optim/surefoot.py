"""Surefoot, the optimizer that needs no learning rate: all of it, from top to bottom."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from surefoot.optim._distributed import gathered, shard
from surefoot.optim._interface import LossOptimizer, Part, check_rate, is_number
from surefoot.optim._model_based import clip_factor
from surefoot.optim._spectral import layer_scale, nuclear_norm, polar_factor
from surefoot.optim._tensors import SMALL, WIDE, inner, lerp_, move_, mul_, sum_sq, total, wide
from surefoot.theory import level
from surefoot.theory.models import safe_delta

_START = 0.1
"""Share of the first loss that the first steps ask for, and after whose gain agreement counts in full."""
_SMOOTHING = 0.9
"""Share of the past in the smoothed loss."""
_METRIC = 0.99
"""Share of the past in the second moments of everything that is not a matrix."""
_EPS = 1e-12
"""Keeps Adam's metric above zero, in units in which the first loss is 1."""
_POWER = 0.6
"""Exponent of the agreement."""
_WINDOW, _SPAN = 20.0, 0.2
"""The averages behind the agreement look back over so many batches, or over this share of all batches if it is more."""
_TURNS = 5
"""Every so many steps Σ‖g‖_* over Σ‖g‖_F is measured: it differs by a tenth from batch to batch, and changes slowly."""
_LOOK_EVERY = 100
"""Steps between two looks at whether the loss has risen, for which a device has to be waited for."""

_MEANINGLESS = {
    "betas": "momentum is beta=0.9, and no other average has a setting",
    "eps": "there is nothing to regularise",
    "momentum": "it has momentum, beta=0.9",
    "dampening": "its average of gradients has weights that sum to one",
    "nesterov": "its momentum has no such form",
    "amsgrad": "its second moments have no such form",
    "lower_bound": "it measures the loss from what has been gained",
}
"""Arguments of other optimizers, and why they have no meaning here."""
_HARMLESS = ("fused", "foreach", "capturable", "differentiable")
"""Arguments of other optimizers that choose an implementation: there is one here, which reads no values in a step."""


class Block(NamedTuple):
    """Parameters of a group that move in the same metric, with their buffers."""

    group: int
    part: Part
    average: list[Tensor]
    other: list[Tensor]
    """Directions of the last step in the spectral metric, second moments of the gradients in Adam's."""
    spectral: bool
    """Whether they have two dimensions or more, and move along the orthogonal factor of the average."""


class Surefoot(LossOptimizer):
    r"""Needs no learning rate: it asks for a share of what it has gained, along directions that batches agree on.

        d ← running average of the gradients,    u = direction(d),    q = ‖g‖_*
        F = (f − b)₊ + G,    G = share·(f₁ − b), at least |f₁|/10, at most b
        x⁺ = x − min{cap, F/max{q, q̄}}·min{1, q/q̄}·max{a^η·η^(1 − η), η/√W}·u

    * **Direction**: matrices and kernels move along the orthogonal factor of d, as with Muon, everything else in Adam's
      metric. ‖g‖_* is the slope ⟨g, direction(g)⟩ of the batch along its own direction, q̄ its running average. For
      matrices it is measured in every fifth step, and taken in proportion to their Frobenius norms in between.
    * **Length**: f is the loss of the batch, f₁ the first one and b the best smoothed one. A Polyak step asks for the
      decrease F, in place of the distance to a lower bound that nobody knows (:mod:`surefoot.theory.level`).
    * **Agreement**: a compares the slope that a new batch sees along the direction of the *last* step, in which it has
      had no part, with the slope that the average promises along its own. It is 1 where new batches keep that promise,
      and small where the average holds little but noise. Until something has been gained it counts for less, because
      batches of a plateau agree on nothing.
    * **Noise**: a is a mean over W = max{20, k/5} batches, of which 1/√W may be chance, and steps are not shortened by
      more than that. A step that follows a down to 0 wins the next batch and loses the run: where noise is large, no
      batch agrees with a step that is long enough to get far. So long runs anneal themselves, as 1/√k.
    * **Schedule**: η is the largest rate of the groups over the largest one of all steps so far. A schedule anneals the
      run, too, and takes that over from a as it falls: a^η·η^(1 − η) is a without a schedule and η at its end. So the
      value of ``lr`` does not matter, its changes do; a warmup changes nothing. A group with a tenth of another one's
      rate moves a tenth as far, and a rate of 0 stops a group.

    Any unit of the parameters and of the loss gives the same run, as long as the cap does not bind. Nothing of this is
    proved for networks. For convex losses the base inequality holds with δ (``last_step.delta``) and the level in place
    of a lower bound, without momentum: see docs/theory.md.

    The loss has to mean the same in every step. In reinforcement learning it does not, because the policy draws its own
    data: a loss that falls says nothing there, and a first step for a tenth of it may ruin the policy. Take Adam.

    Args:
        params: ``model.parameters()``, ``model.named_parameters()`` or groups. Groups with ``"spectral": False`` have
            Adam's metric throughout; :func:`split` makes such groups of embeddings and the last layer.
        lr: a schedule, not a rate; every scheduler of torch and every loop that sets rates works.
        cap: no element of a matrix moves by more than about 0.2·cap in a step.
        beta: share of the past in d.
        share: of what has been gained, in (0, 1).
        weight_decay: λ, in proportion to the step: x ← (1 − sλ)x with the step s·u. Directions are as long as Adam's,
            so λ means what it means in AdamW at a rate of s, which is about AdamW's best one: leave it as it was.
        max_grad_norm: scales the step with min{1, max_grad_norm/‖g‖}; gradients clipped by hand are recognised.
        on_nonfinite: ``"skip"`` leaves everything untouched and counts where loss or gradient are not finite;
            ``"raise"`` raises ``ValueError``, for which it has to wait for the device.
        process_group: the loss is averaged over this group: ``"auto"``, None or a process group.
        listen: receive the loss from ``loss.backward()``, so that ``step()`` needs none.
        maximize: the loss is an objective that should grow.
        **left_in: arguments of the optimizer that stood here before. Those that choose an implementation (``fused``,
            ``foreach``, ``capturable``) are taken, the others are refused with a reason.

    >>> import torch
    >>> net = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    >>> opt = Surefoot(net.parameters())
    >>> for _ in range(100):
    ...     opt.zero_grad()
    ...     inputs = torch.randn(32, 4)
    ...     loss = (net(inputs).squeeze(-1) - inputs.prod(-1).tanh()).square().mean()
    ...     loss.backward()
    ...     _ = opt.step()
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1.0,
        *,
        cap: float = 10.0,
        beta: float = 0.9,
        share: float = 0.9,
        weight_decay: float = 0.0,
        max_grad_norm: float | None = None,
        on_nonfinite: str = "skip",
        process_group: Any = "auto",
        listen: bool = True,
        maximize: bool = False,
        **left_in: Any,
    ) -> None:
        for name, value in left_in.items():
            if name in _MEANINGLESS and value not in (False, 0, 0.0):
                raise TypeError(f"Surefoot needs no {name}: {_MEANINGLESS[name]}; remove {name}={value!r}")
            if name not in _MEANINGLESS and name not in _HARMLESS:
                raise TypeError(f"Surefoot has no argument {name!r}")
        for name, value in (("cap", cap), ("max_grad_norm", 1.0 if max_grad_norm is None else max_grad_norm)):
            if not is_number(value) or not 0 < value < math.inf:
                raise ValueError(f"{name} must be a finite number above 0, got {value!r}")
        if not is_number(beta) or not 0 <= beta < 1:
            raise ValueError(f"beta must be a number in [0, 1), got {beta!r}")
        if not is_number(share) or not 0 < share < 1:
            raise ValueError(f"share must be a number in (0, 1), got {share!r}")
        self.cap, self.share, self.max_grad_norm = float(cap), float(share), max_grad_norm
        defaults = {"lr": check_rate("lr", lr), "weight_decay": check_rate("weight_decay", weight_decay)}
        defaults["momentum"] = float(beta)  # under torch's name, where schedulers such as OneCycleLR change it
        defaults["turn"] = 0  # how many steps were taken, in the first group
        common = {"on_nonfinite": on_nonfinite, "process_group": process_group, "listen": listen, "maximize": maximize}
        super().__init__(params, defaults, **common)
        self._risen = 0

    def _memory(self) -> Mapping[str, float]:
        memory = {f"level_{name}": value for name, value in level.Seen()._asdict().items()}
        smaller_sides = [min(len(p), p.numel() // len(p)) for group in self.param_groups for p in spectral(group)]
        return {
            "count": 0.0,
            "bound": 0.0,
            "peak": 0.0,
            "unit": 0.0,
            "spread": math.sqrt(max(smaller_sides, default=1)),  # its largest possible value
            "overlap": 0.0,
            "slope": 0.0,
            "q_mean": 0.0,
            "compared": 0.0,
            **memory,
        }

    def reset_level(self) -> None:
        """Forget what was learned of the losses and of how batches agree: for new data, or a new phase."""
        group = self.param_groups[0]
        for place, (name, value) in enumerate(self._memory().items()):
            if name not in ("count", "bound", "peak", "unit", "spread"):
                group["memory"][place] = value

    def _blocks(self) -> list[Block]:
        """The parameters that have a gradient, by group and metric."""
        blocks = []
        for index, group in enumerate(self.param_groups):
            kernels = spectral(group)
            rest = [p for p in group["params"] if p.ndim < 2 or not p.numel()] if kernels else group["params"]
            for params, other in ((kernels, "direction"), (rest, "second_moment")):
                for part in self._parts(params):
                    buffers = self._buffer("average", part), self._buffer(other, part)
                    blocks.append(Block(index, part, *buffers, spectral=params is kernels))
        return blocks

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None, *, loss: Tensor | float | None = None) -> Any:
        """Take a step with the loss of this batch: the one that ``loss.backward()`` was called on.

        A loss that is handed over wins: as ``loss=``, from the closure, or by :meth:`add_loss` beforehand. Returns the
        loss. Without any loss it is an error, unless every rate is 0.
        """
        returned, f, shrunk = self._loss_of_step(closure, loss)
        blocks = self._blocks()
        if f is None or not blocks:
            return returned
        group, past = self.param_groups[0], self._past()
        seen = level.Seen(*[past[f"level_{name}"] for name in level.Seen._fields])

        # If the loss or the gradient is not finite, on any rank, the step is skipped: everything runs as ever, and
        # nothing changes.
        grad_sq = torch.zeros_like(f)
        for block in blocks:
            grad_sq = grad_sq + block.part.total(sum_sq(block.part.grads, f))
        f, finite, _ = self._agreed(f, grad_sq, None)
        count = past["count"] + 1.0
        unit = torch.where(past["unit"] > 0.0, past["unit"], f.abs())
        unit = torch.where(unit > 0.0, unit, 1.0)

        # The batch: the slope along the last direction, Σ⟨g, u⟩, and along its own, q = Σ‖g‖_*. The part of matrices is
        # measured now and then; in between it grows as the Frobenius norms do.
        overlap = q = norms = lengths = torch.zeros_like(f)
        measured = group["turn"] % _TURNS == 0
        group["turn"] += 1
        moments = {}
        for place, (_, part, average, other, is_spectral) in enumerate(blocks):
            if is_spectral:
                u = other
                lengths = lengths + lengths_of(part, f)
                norms = norms + norms_of(part, f) if measured else norms
            else:
                moments[place] = new_moments(other, part.grads, unit)
                own = adam_directions(part.grads, moments[place], count, unit)
                q = q + part.total(inner(part.grads, own, f))
                u = adam_directions(average, other, past["count"].clamp_min(1.0), unit)
            overlap = overlap + part.total(inner(part.grads, u, f))
        spread = torch.where(lengths > 0.0, norms / lengths, past["spread"]) if measured else past["spread"]
        q = q + spread * lengths
        finite = finite & torch.isfinite(overlap + q)
        skip = ~finite

        # The average, its direction, and the slope that it promises.
        promised = torch.zeros_like(f)
        directions = []
        for place, (index, part, average, other, is_spectral) in enumerate(blocks):
            weight = level.average_weight(self.param_groups[index]["momentum"], count, bias_correction=True)
            lerp_(average, part.grads, weight, skip)
            if is_spectral:
                turn_(part, average, other, skip)
                u = other
            else:
                lerp_(other, moments[place], torch.ones_like(f), skip)
                u = adam_directions(average, other, count, unit)
            directions.append(u)
            promised = promised + part.total(inner(average, u, f))

        # Rates are the cap, clipped. A step along gradients cg that were clipped by hand promises ⟨g, u⟩ = ⟨cg, u⟩/c.
        clip = None if self.max_grad_norm is None else clip_factor(grad_sq, self.max_grad_norm)
        cap = torch.full_like(f, self.cap) if clip is None else self.cap * clip
        worth = cap if shrunk is None else cap / shrunk
        overlap, q, promised = worth * overlap, worth * q, worth * promised

        # Polyak's step: the decrease F that is asked for, over what the cap promises.
        seen, gap, steady = level.observe(level.Rule(self.share, _START, _SMOOTHING), seen, f, q)
        scale = torch.where(steady > gap, gap / steady, 1.0) * (gap > 0.0)

        # Shorter as far as batches disagree with the last direction, once something has been gained.
        compared = past["compared"] + 1.0
        window = torch.clamp_min(_SPAN * compared, _WINDOW)
        weight = 1.0 / torch.minimum(compared, window)
        first = compared <= 1.0  # nothing to compare the first batch with
        overlap = past["overlap"] + weight * (torch.where(first, promised, overlap) - past["overlap"])
        slope = past["slope"] + weight * (promised - past["slope"])
        q_mean = past["q_mean"] + weight * (q - past["q_mean"])
        agreed = 1.0 - progress(seen) * (1.0 - clipped_ratio(overlap, slope) ** _POWER)
        scale = scale * clipped_ratio(q, q_mean)

        # x ← x − s·u, with what schedule and groups make of s.
        rates = [self._scalar(each["lr"]) for each in self.param_groups]
        highest = torch.stack(rates).amax()
        peak = torch.maximum(past["peak"], highest)
        eta = clipped_ratio(highest, peak)
        size_of_highest = scale * cap * torch.maximum(agreed**eta * eta ** (1.0 - eta), eta * window**-0.5)
        sizes = [size_of_highest * clipped_ratio(rate, highest) for rate in rates]
        for (index, part, *_), u in zip(blocks, directions, strict=True):
            size, decay = sizes[index], self.param_groups[index]["weight_decay"]
            if decay:
                mul_(part.params, 1.0 - size * decay, skip)
            move_(part.params, u, size, skip)

        # What is kept, unless the step was skipped, and what is reported in any case.
        new = [count, f - gap, peak, unit, spread, overlap, slope, q_mean, compared, *seen]
        memory = dict(zip(self._memory(), new, strict=True))
        delta = safe_delta(gap, q, torch.ones_like(f), size_of_highest / cap)
        grad_sq = grad_sq if shrunk is None else grad_sq / shrunk**2
        self._record(memory, f, finite, skip, delta, grad_sq, sizes)
        self._notice_risen(seen)
        return returned

    def _notice_risen(self, seen: level.Seen) -> None:
        """Warn where the loss is well above its first value, and was so a hundred steps ago."""
        if torch.compiler.is_compiling() or self._steps % _LOOK_EVERY:
            return
        self._risen = self._risen + 1 if bool(seen.smooth - seen.first > _START * seen.first.abs()) else 0
        if self._risen == 2:
            warnings.warn(
                f"the loss is {float(seen.smooth):g}; it began at {float(seen.first):g}. Surefoot goes by the loss, "
                "which has to mean the same in every step. Take another optimizer for reinforcement learning, and call "
                "reset_level() where the data or the task have changed",
                stacklevel=5,
            )


def spectral(group: Mapping[str, Any]) -> list[Tensor]:
    """The matrices and kernels of a group that has the spectral metric."""
    return [p for p in group["params"] if p.ndim >= 2 and p.numel()] if group.get("spectral", True) else []


def turn_(part: Part, averages: list[Tensor], directions: list[Tensor], skip: Tensor) -> None:
    """Directions ← orthogonal factors of the averages, as long as Adam's steps for their shapes, unless skipped."""
    one = torch.ones_like(skip, dtype=torch.float32)
    for places, stack in stacks_of(whole(part, averages)):
        factors = polar_factor(stack).mul_(layer_scale(stack[0], "match_rms_adamw")).unbind()
        originals = [part.originals[place] for place in places]
        new = [u.reshape(p.shape).to(p.dtype) for u, p in zip(factors, originals, strict=True)]
        if part.shards is not None:
            new = [shard(u, p) for u, p in zip(new, originals, strict=True)]
        lerp_([directions[place] for place in places], new, one, skip)


def norms_of(part: Part, like: Tensor) -> Tensor:
    """Σ⟨g, direction(g)⟩ of matrices and kernels, without their directions.

    (Those of the average would cost nothing, but the norm is then several times too large for small batches, whose
    gradients have low rank.)
    """
    norms = []
    for _, stack in stacks_of(whole(part, part.grads)):
        norms.append(layer_scale(stack[0], "match_rms_adamw") * nuclear_norm(stack).sum())
    return total(norms, like)


def lengths_of(part: Part, like: Tensor) -> Tensor:
    """Σ‖g‖_F of matrices and kernels, in the units of :func:`norms_of`."""
    scales = [layer_scale(g, "match_rms_adamw") for g in part.originals]
    norms = torch._foreach_mul(torch._foreach_norm(part.grads, 2, like.dtype), scales)
    squares = torch.stack([norm.to(like.device) for norm in norms]).square()
    return part.total(squares).sqrt().sum()


def stacks_of(kernels: list[Tensor]) -> Iterator[tuple[list[int], Tensor]]:
    """Kernels as matrices, small ones of one shape together, because a call costs more: their places, and the stack."""
    places_of: dict[Any, list[int]] = {}
    for place, kernel in enumerate(kernels):
        alike = (kernel.flatten(1).shape, kernel.dtype, kernel.device) if kernel.numel() <= SMALL else place
        places_of.setdefault(alike, []).append(place)
    for places in places_of.values():
        matrices = [kernels[place].flatten(1).to(wide(kernels[place].dtype)) for place in places]
        yield places, matrices[0][None] if len(places) == 1 else torch.stack(matrices)


def new_moments(second_moments: list[Tensor], gradients: list[Tensor], unit: Tensor) -> list[Tensor]:
    """The second moments with the gradients, v + (1 − β₂)((g/unit)² − v)."""
    squares = over(gradients, unit)
    torch._foreach_mul_(squares, squares)
    return list(torch._foreach_lerp(wider(second_moments), squares, 1.0 - _METRIC))


def adam_directions(tensors: list[Tensor], second_moments: list[Tensor], count: Tensor, unit: Tensor) -> list[Tensor]:
    """d/D with Adam's metric D = √(v/(1 − β₂^k)) + ε, where v averages the squares of gradients over ``unit``."""
    metrics = over(second_moments, 1.0 - _METRIC**count)
    torch._foreach_sqrt_(metrics)
    torch._foreach_add_(metrics, _EPS)
    directions = over(tensors, unit)
    torch._foreach_div_(directions, metrics)
    return [u if u.dtype is d.dtype else u.to(d.dtype) for u, d in zip(directions, tensors, strict=True)]


def wider(tensors: list[Tensor]) -> list[Tensor]:
    """The tensors in float32 or better."""
    return [a if a.dtype in WIDE else a.float() for a in tensors]


def over(tensors: list[Tensor], divisor: Tensor) -> list[Tensor]:
    """The tensors over a number, in float32 or better."""
    return list(torch._foreach_mul(wider(tensors), (1.0 / divisor).to(tensors[0].device, wide(tensors[0].dtype))))


def clipped_ratio(part: Tensor, full: Tensor) -> Tensor:
    """``part/full``, clipped to [0, 1]; 0 where ``full`` is 0."""
    part = torch.minimum(part.clamp_min(0.0), full)  # before the division, which overflows where ``full`` is tiny
    return torch.where(full > 0.0, part / torch.where(full > 0.0, full, 1.0), 0.0)


def progress(seen: level.Seen) -> Tensor:
    """How far a run has left its start, in [0, 1]: what has been gained over what its first steps ask for."""
    size = seen.first.abs()
    gained: Tensor = (seen.first - seen.best) / (_START * torch.where(size > 0.0, size, 1.0))
    return gained.clamp(0.0, 1.0)


def whole(part: Part, tensors: list[Tensor]) -> list[Tensor]:
    """The tensors as a whole, on every rank, if this rank holds shards of them only."""
    if part.shards is None:
        return tensors
    return [gathered(tensor, original) for tensor, original in zip(tensors, part.originals, strict=True)]


def split(model: nn.Module) -> list[dict[str, Any]]:
    """Parameter groups of a network: matrices inside it, and embeddings, the last layer and vectors in Adam's metric.

    For :class:`Surefoot` and the spectral optimizers, where ``model.parameters()`` puts every matrix into the spectral
    metric.

    >>> groups = split(nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 4), nn.Linear(4, 10)))
    >>> [len(group["params"]) for group in groups], groups[1]["spectral"]
    ([1, 4], False)
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    layers = [layer for layer in model.modules() if any(True for _ in layer.parameters(recurse=False))]
    matrices = [layer for layer in layers if any(p.ndim >= 2 for p in layer.parameters(recurse=False))]
    outer = {id(p) for layer in layers if isinstance(layer, nn.Embedding | nn.EmbeddingBag) for p in layer.parameters()}
    outer |= {id(p) for layer in matrices[-1:] for p in layer.parameters(recurse=False)}
    inside = [p for p in model.parameters() if p.ndim >= 2 and id(p) not in outer]
    inside_ids = {id(p) for p in inside}
    rest = [p for p in model.parameters() if id(p) not in inside_ids]
    groups: list[dict[str, Any]] = [{"params": inside}, {"params": rest, "spectral": False}]
    return [group for group in groups if group["params"]]
