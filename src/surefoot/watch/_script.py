"""Running a script as Python itself would: arguments, paths, ``__main__``, exit code and traceback are its own.

It imports torch when and as it wants to, and we wait for that.
"""

from __future__ import annotations

import builtins
import importlib.abc
import importlib.machinery
import importlib.util
import io
import os
import runpy
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any


@dataclass(frozen=True)
class Script:
    """What is to be run: a file, or with ``module`` a module as after ``python -m``."""

    name: str
    arguments: tuple[str, ...] = ()
    module: bool = False

    def check(self) -> None:
        """Say what is wrong before anything runs.

        Raises:
            ValueError: There is no such file or module, or it is no Python file.
        """
        if self.module:
            self._check_module()
            return
        path = Path(self.name)
        if not path.exists():
            raise ValueError(f"SCRIPT must be a Python file, {self.name!r} does not exist")
        if path.is_dir():
            raise ValueError(f"SCRIPT must be a Python file, {self.name!r} is a folder; -m runs a package")
        if path.suffix not in (".py", ".pyw", ""):
            raise ValueError(f"SCRIPT must be a Python file (.py), got {self.name!r}")

    @property
    def title(self) -> str:
        """The command line without the interpreter."""
        return " ".join([*(["-m"] if self.module else []), self.name, *self.arguments])

    @property
    def stem(self) -> str:
        """A short name for files."""
        return self.name.rpartition(".")[2] if self.module else Path(self.name).stem

    def run(self, has_torch: Callable[[], None], ended: Callable[[BaseException], None]) -> None:
        """Run it as ``__main__``.

        Args:
            has_torch: Called once it has imported torch.
            ended: Called with an exception that it lets through.
        """
        if "torch" in sys.modules:
            has_torch()
        else:
            sys.meta_path.insert(0, _AfterTorch(has_torch))
        sys.argv = [self.name, *self.arguments]
        self._set_path()
        main = ModuleType("__main__")
        main.__dict__["__builtins__"] = builtins
        sys.modules["__main__"] = main
        try:
            _execute(self, main)
        except BaseException as error:
            ended(error)
            if not isinstance(error, SystemExit):
                sys.excepthook = partial(_show, sys.excepthook)
            raise

    def _set_path(self) -> None:
        """Set ``sys.path[0]`` to the folder of a script, or the working directory for ``-m``."""
        if not sys.flags.safe_path:
            sys.path[:1] = [os.getcwd() if self.module else os.path.dirname(os.path.realpath(self.name))]

    def _check_module(self) -> None:
        before = list(sys.path)
        self._set_path()
        try:
            spec, reason = importlib.util.find_spec(self.name), "there is none"
        except (ImportError, ValueError) as error:
            spec, reason = None, str(error)
        sys.path[:] = before
        if spec is None:
            raise ValueError(f"MODULE after -m must be one that can be imported, got {self.name!r}: {reason}")


def _execute(script: Script, main: ModuleType) -> None:
    """Run a script in a module. This is the last frame before the script's own."""
    if script.module:
        runpy._run_module_as_main(script.name)  # type: ignore[attr-defined]
        return
    path = os.path.abspath(script.name)
    with io.open_code(path) as file:
        source = file.read()
    main.__file__ = path
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
    main.__dict__["__cached__"] = None
    exec(compile(source, path, "exec", dont_inherit=True), main.__dict__)


def _show(
    hook: Callable[..., Any], kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> Any:
    """Show an exception by the ``excepthook`` that was in place, without the frames that lead to the script."""
    while trace is not None and trace.tb_frame.f_code is not _execute.__code__:
        trace = trace.tb_next
    error.__traceback__ = None if trace is None else trace.tb_next
    return hook(kind, error, error.__traceback__)


class _AfterTorch(importlib.abc.MetaPathFinder):
    """Calls a function once torch has been imported; a script that sets OMP_NUM_THREADS first is not disturbed.

    Scripts may also just ask whether torch is there (``importlib.util.find_spec``), as often as they like.
    """

    def __init__(self, then: Callable[[], None]) -> None:
        self._then = then

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> Any:
        """Let the others find torch, and continue after its loader."""
        if name != "torch":
            return None
        found = (other.find_spec(name, path, target) for other in sys.meta_path if other is not self)
        spec = next((spec for spec in found if spec is not None), None)
        loader: Any = None if spec is None else spec.loader
        if loader is not None:
            load = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                load(module)
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                    self._then()

            loader.exec_module = exec_module
        return spec
