"""Runs with a level in place of a lower bound: what they remember, and the steps that follow from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from surefoot._base.arguments import parse_call, unknown
from surefoot.runs._types import Floats
from surefoot.theory import level
from surefoot.theory.models import Model, safe_delta

if TYPE_CHECKING:
    from surefoot.runs._methods import Method

_FIELDS = tuple(level.Rule.__dataclass_fields__)


def parse_level(text: str) -> level.Rule:
    """The level that ``level`` or ``level(share=0.3)`` stands for.

    >>> parse_level("level(share=0.3)")
    Rule(share=0.3, first=0.1, smoothing=0.9)
    """
    name, options = parse_call(text)
    if name != "level":
        raise ValueError(f"lower_bound must be a number, level or level(share=...), got {text!r}")
    for key in options:
        if key not in _FIELDS:
            raise unknown("parameter of 'level'", key, _FIELDS)
    return level.Rule(**options)


def level_name(rule: level.Rule) -> str:
    """``level``, with the parameters that differ from their defaults.

    >>> level_name(level.Rule(share=0.3))
    'level(share=0.3)'
    """
    parts = [f"{key}={getattr(rule, key)!r}" for key in _FIELDS if getattr(rule, key) != getattr(level.Rule(), key)]
    return f"level({', '.join(parts)})" if parts else "level"


class Levels:
    """The memory of runs with a level, by slot; slots without a level are left alone.

    Every number belongs to one slot: no run's bits depend on its neighbours.
    """

    def __init__(self, methods: Sequence[Method]) -> None:
        groups: dict[tuple[int, level.Rule], list[int]] = {}
        models: dict[int, Model] = {}
        for slot, method in enumerate(methods):
            if method.level is not None and method.model is not None:
                models[id(method.model)] = method.model
                groups.setdefault((id(method.model), method.level), []).append(slot)
        self._groups: list[tuple[Model, level.Rule, Any]] = [
            (models[key], rule, np.array(slots)) for (key, rule), slots in groups.items()
        ]
        self.slots = np.array([slot for slots in groups.values() for slot in slots], int)
        self._seen = level.Seen(*(np.full(len(methods), value) for value in level.Seen()))

    def step(self, places: Any, loss: Floats, grad_sq: Floats, rates: Floats, size: Floats, delta: Floats) -> None:
        """Write size and index of a step for the slots ``places``; the other arrays stand in their order.

        A loss or gradient that is not finite is not remembered, and gives no step.
        """
        where = np.full(len(self._seen.count), -1)
        where[places] = np.arange(len(places))
        for model, rule, slots in self._groups:
            slots = slots[where[slots] >= 0]
            here = where[slots]
            before = level.Seen(*(values[slots] for values in self._seen))
            value, decrease = loss[here], rates[here] * grad_sq[here]
            seen = level.observe(before, value, decrease, rule.smoothing)
            height = level.height(seen, value, rule.share, rule.first)
            scale = model.step(height, level.steady_decrease(seen, decrease), 1.0).size
            finite = np.isfinite(value + decrease)
            size[here] = np.where(finite, scale * rates[here], 0.0)
            delta[here] = np.where(finite, safe_delta(height, decrease, 1.0, scale), np.inf)
            for kept, old, new in zip(self._seen, before, seen, strict=True):
                kept[slots] = np.where(finite, new, old)
