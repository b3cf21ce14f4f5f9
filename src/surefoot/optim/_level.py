"""A level: the height of the loss above what a few good steps can reach, where no lower bound is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from surefoot.optim._arithmetic import Scalar
from surefoot.optim._height import Height, Sight
from surefoot.theory import level
from surefoot.theory.models import safe_delta

_NAMES = tuple(f"level_{name}" for name in level.Seen._fields)


@dataclass(frozen=True)
class Level(level.Rule, Height):
    """A level below the best loss so far, lowered as it is reached; ``lower_bound="level"`` is ``Level()``.

        F = (f − b)₊ + G,    G = share·(f₁ − b), at least first·|f₁|, at most b

    f is the batch loss, f₁ the first one and b the smallest value that the smoothed loss has had. A step at the best
    loss so far asks for a ``share`` of what has been gained; after a spike F has the spike's height, so that the step
    leads back down; a lucky batch (f < b) still has F = G, and does not stop the run. t is the model's at F and at the
    larger one of q and its running average, so that a batch that happens to be fitted does not get the longest step.

    * *Smoothing*: an exponential average with weights that sum to one from the first loss on, as Adam's.
    * *Losses below zero*: "at most b" takes zero for a lower bound. It is dropped if the first loss is 0 or less, and
      at the first batch loss below zero.
      Only |f₁| depends on where zero is, in the first steps: a loss that is shifted by many times what training can
      gain wants a smaller ``first``. A first loss of 0 counts as 1.
    * *Losses that can be fitted* converge to 0, but more slowly than with ``lower_bound=0``.
    * *Gradient accumulation*: the loss that :meth:`step <ModelBased.step>` is given or hears, the sum over micro
      batches. *DDP*: its mean over the ranks, so that all of them agree. *AMP*: a step that the scaler skips is none.
    * *Losses that are not finite* leave everything as it was, and are counted.
    * All of it is in the checkpoint, and goes on from there, also from that of another run;
      :meth:`ModelBased.reset_level` forgets it, for new data or a new phase.

    A level hardly protects averages of linearisations, because an averaged gradient promises little: NGNAdam, SPSMuon
    and NGNMuon have an :class:`AveragedDirection` with it; MoMo and MoMoAdam keep theirs.

    δ is the safe index with this height, F(1 − t) + ½t²q. Its bounds hold with max{f(u), C} in place of f(u): partial
    sums are no certificates.

    Args:
        share: of what has been gained so far, in (0, 1).
        first: share of the first loss that the first steps ask for, in (0, 1).
        smoothing: share of the past in the smoothed loss, in [0, 1).

    >>> import torch, surefoot.optim as sfo
    >>> x = torch.nn.Parameter(torch.tensor(2.0))
    >>> opt = sfo.SPS([x], lr=100.0, lower_bound=Level(first=0.1))
    >>> loss = 0.5 * x**2 + 7.0                                # nobody knows the 7
    >>> loss.backward()
    >>> _ = opt.step()
    >>> round(opt.lower_bound.item(), 6)                       # a tenth below the first loss
    8.1
    """

    def start(self) -> dict[str, float]:
        """The scalars of a level that has seen no loss yet."""
        return {"bound": 0.0, **dict(zip(_NAMES, level.Seen(), strict=True))}

    def bound(self, sight: Sight, past: Mapping[str, Scalar]) -> Scalar:
        """The level C = f − F."""
        return sight.value - level.height(self._seen(sight, past), sight.value, self.share, self.first)

    def decrease(self, sight: Sight, past: Mapping[str, Scalar]) -> Scalar:
        """The larger one of q and its running average."""
        return level.steady_decrease(self._seen(sight, past), sight.decrease)

    def progress(self, sight: Sight, past: Mapping[str, Scalar]) -> Scalar:
        """What has been gained, over what the first steps ask for."""
        return level.progress(self._seen(sight, past), self.first)

    def index(self, delta: Scalar, excess: Scalar, decrease: Scalar, scale: Scalar) -> Scalar:
        """The safe index: the model's own holds below the infimum only."""
        return safe_delta(excess, decrease, 1.0, scale)

    def after(self, sight: Sight, past: Mapping[str, Scalar], bound: Scalar, scale: Scalar) -> dict[str, Scalar]:
        """What the level remembers for the next step."""
        return dict(zip(_NAMES, self._seen(sight, past), strict=True))

    def _seen(self, sight: Sight, past: Mapping[str, Scalar]) -> level.Seen:
        seen: level.Seen | None = sight.known.get("seen")
        if seen is None:
            before = level.Seen(*[past[name] for name in _NAMES])
            seen = sight.known["seen"] = level.observe(before, sight.loss, sight.decrease, self.smoothing)
        return seen
