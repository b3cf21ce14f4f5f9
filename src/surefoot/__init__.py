"""surefoot: train without tuning the learning rate.

The names below are loaded when they are first used, so that ``import surefoot`` stays quick and nobody pays for a
library that they do not need.
"""

from __future__ import annotations

import importlib.util
import pkgutil
from typing import TYPE_CHECKING, Any

from surefoot._version import __version__

if TYPE_CHECKING:
    from surefoot.forecasting import forecast
    from surefoot.monitor import StabilityMonitor
    from surefoot.search import TorchRun, tune
    from surefoot.study import Result, Study

_MODULE_OF = {
    "Result": "surefoot.study",
    "StabilityMonitor": "surefoot.monitor",
    "Study": "surefoot.study",
    "TorchRun": "surefoot.search",
    "forecast": "surefoot.forecasting",
    "tune": "surefoot.search",
}

__all__ = ["Result", "StabilityMonitor", "Study", "TorchRun", "__version__", "forecast", "tune"]


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        return getattr(importlib.import_module(_MODULE_OF[name]), name)
    if not name.startswith("_") and importlib.util.find_spec(f"surefoot.{name}") is not None:
        return importlib.import_module(f"surefoot.{name}")
    raise AttributeError(f"module 'surefoot' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names, and no others: what ``sf.<TAB>`` shows."""
    packages = [module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_")]
    return sorted({*__all__, *packages})
