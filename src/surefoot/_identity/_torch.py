"""What a user has put into torch, and its settings that numbers depend on."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FunctionType
from typing import Any

from surefoot._identity._packages import package_of

_PLACES = ("torch.nn", "torch.optim", "torch.functional", "torch._tensor")
"""Modules of torch in which people replace functions and methods, and register hooks."""


def settings() -> dict[str, Any]:
    """All that changes what code does with torch, and is not in the code; empty as long as nobody has changed it."""
    torch: Any = sys.modules["torch"]
    values = {
        "dtype": (torch.get_default_dtype(), torch.float32),
        "deterministic": (torch.are_deterministic_algorithms_enabled(), False),
        "precision": (torch.get_float32_matmul_precision(), "highest"),
        "mkldnn": (torch.backends.mkldnn.enabled, True),
        "denormal": (float(torch.tensor(1e-39) * 1.0) == 0.0, False),
    }
    changed = {name: value for name, (value, usual) in values.items() if value != usual}
    for mode in torch.overrides._get_current_function_mode_stack():
        if _is_own(mode):
            changed[f"mode {len(changed)}"] = mode
    return changed | dict(_put_in())


def _put_in() -> Iterator[tuple[str, Any]]:
    """The functions and objects of a user that modules and classes of torch hold."""
    for name, module in sorted(sys.modules.items()):
        if name != "torch" and not name.startswith(_PLACES):
            continue
        for key, value in list(vars(module).items()):
            if isinstance(value, type) and value.__module__ == name:
                yield from ((f"{name}.{key}.{own}", item) for own, item in list(vars(value).items()) if _is_own(item))
            elif key.startswith("_global") and isinstance(value, dict):
                yield from ((f"{name}.{key}", item) for item in value.values() if _is_own(item))
            elif _is_own(value):
                yield f"{name}.{key}", value


def _is_own(value: Any) -> bool:
    """Whether something is the user's, or of a class of the user's: by the name of its module, which is fast."""
    if isinstance(value, FunctionType):
        module = value.__globals__.get("__name__", "")
    else:
        module = (value if isinstance(value, type) else type(value)).__module__
    if not isinstance(module, str) or module.startswith(("torch", "builtins")):
        return False
    return module in sys.modules and package_of(module) is None
