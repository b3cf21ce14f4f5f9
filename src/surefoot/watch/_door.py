"""Waiting for torch: it is imported by the script, when and as the script wants it, and not by us."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


class TorchDoor:
    """Calls ``opened`` once torch has been imported; a script that sets OMP_NUM_THREADS first is not disturbed."""

    def __init__(self, opened: Callable[[], None]) -> None:
        self._opened = opened
        if "torch" in sys.modules:
            opened()
        else:
            sys.meta_path.insert(0, self)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Let the others find torch, and wait behind its loader."""
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        loader = None if spec is None else spec.loader
        if loader is None:
            sys.meta_path.insert(0, self)  # torch is not installed, or not yet
            return spec
        load = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module  # the loader's own shows again
            try:
                load(module)
            except BaseException:
                sys.meta_path.insert(0, self)
                raise
            self._opened()

        loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
