"""A package that is not installed is an error that names the extra."""

from __future__ import annotations

import importlib
import sys

import pytest

PACKAGES = {
    "lightning": "lightning.pytorch",
    "transformers": "transformers",
    "optuna": "optuna.pruners",
    "tensorboard": "torch.utils.tensorboard",
}


@pytest.mark.parametrize("extra", PACKAGES)
def test_the_error_names_the_extra(monkeypatch, extra):
    monkeypatch.setitem(sys.modules, PACKAGES[extra], None)  # importing it fails, as if it were not there
    monkeypatch.delitem(sys.modules, f"surefoot.integrations.{extra}", raising=False)
    with pytest.raises(ImportError, match=rf"surefoot\[{extra}\]"):
        importlib.import_module(f"surefoot.integrations.{extra}")
