"""Names of levels, which stand in place of a lower bound."""

from __future__ import annotations

from surefoot._base.arguments import parse_call, unknown
from surefoot.theory import level

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
