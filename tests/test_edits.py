"""Edits of user code: which ones an identity sees, and which ones it does not mind."""

import builtins
import importlib
import sys
import types
from contextlib import contextmanager

import pytest
import torch
from tests.identity_cases import ALONE, BEFORE, CODE, HELPERS, IMPORTED, SEEN, UNSEEN
from torch import nn

from surefoot._identity import identify, merged

PARTS = ("make", "loss", "optimizer")


@contextmanager
def as_before():
    """Puts back what code changes in libraries and in the process."""
    hooks = nn.modules.module._global_forward_hooks, sys.modules["torch.optim.optimizer"]._global_optimizer_pre_hooks
    with pytest.MonkeyPatch.context() as patch:
        for owner in (nn.Linear, nn.modules.batchnorm._BatchNorm):
            patch.setattr(owner, "forward", vars(owner)["forward"])
        patch.setattr(nn.functional, "relu", nn.functional.relu)
        patch.setattr(builtins, "sum", sum)
        patch.setattr(sys, "argv", sys.argv[:])
        patch.setattr(sys, "dont_write_bytecode", True)
        patch.setenv("OWN_SCALE", "")
        patch.setattr(builtins, "own_scale", None, raising=False)
        patch.setattr(builtins, "entered_mode", None, raising=False)
        try:
            yield patch
        finally:
            if builtins.entered_mode is not None:
                builtins.entered_mode.__exit__(None, None, None)
    torch.set_default_dtype(torch.float32)
    for registered in hooks:
        registered.clear()
    for name in [name for name in sys.modules if name.partition(".")[0] in ("mine", "pkg", "mycode", "helpers")]:
        del sys.modules[name]


def identity_of(module):
    """As of a study: of the functions, and of the model that is made."""
    values = [getattr(module, name) for name in PARTS if hasattr(module, name)]
    torch.manual_seed(0)
    models = [module.make()] if hasattr(module, "make") else []
    return merged([identify(*values), identify(*models)])


def alone(code, value):
    """The identity of code in a module of its own."""
    with as_before():
        module = types.ModuleType("mine")
        sys.modules["mine"] = module
        exec(compile(BEFORE + code.replace("VALUE", value), "mine.py", "exec"), vars(module))
        return identity_of(module)


def tells(one, other):
    """Whether runs of one are not taken for runs of the other."""
    return one.digest != other.digest or one.unknown or other.unknown


@pytest.mark.parametrize("case", ALONE, ids=[case[0] for case in ALONE])
def test_an_edit_is_seen(case):
    _, code, one, other = case
    assert tells(alone(code, one), alone(code, other))


@pytest.mark.parametrize("case", IMPORTED, ids=[case[0] for case in IMPORTED])
def test_an_edit_of_an_imported_package_is_seen(case, tmp_path):
    _, files, code = case

    def load(value):
        with as_before() as patch:
            patch.syspath_prepend(str(tmp_path))
            for name, text in files.items():
                (tmp_path / name).parent.mkdir(exist_ok=True)
                (tmp_path / name).write_text(text.replace("VALUE", value))
            importlib.invalidate_caches()
            module = types.ModuleType("mine")
            sys.modules["mine"] = module
            exec(compile(BEFORE + code, "mine.py", "exec"), vars(module))
            return identity_of(module)

    assert tells(load("1.0"), load("3.0"))


def two_modules(folder, file=None, old=None, new=None):
    """The identity of code in two modules, after an edit of one of them."""
    sources = {"code": CODE, "helpers": HELPERS}
    if file is not None:
        assert old in sources[file], old
        sources[file] = sources[file].replace(old, new)
    (folder / "helpers.py").write_text(sources["helpers"])
    (folder / "mycode.py").write_text(sources["code"])
    with as_before() as patch:
        patch.syspath_prepend(str(folder))
        importlib.invalidate_caches()
        return identity_of(importlib.import_module("mycode"))


@pytest.mark.parametrize("case", SEEN, ids=[case[0] for case in SEEN])
def test_an_edit_in_two_modules_is_seen(case, tmp_path):
    assert tells(two_modules(tmp_path), two_modules(tmp_path, *case[1:]))


def test_few_harmless_edits_compute_again(tmp_path):
    before = two_modules(tmp_path)
    assert not before.unknown
    again = [case[0] for case in UNSEEN if tells(before, two_modules(tmp_path, *case[1:]))]
    assert len(again) <= 0.1 * len(UNSEEN), again


def test_the_tables_are_large():
    assert len(SEEN) + len(ALONE) + len(IMPORTED) >= 100
    assert len(UNSEEN) >= 40
