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
    "optax": "optax",
}
EXTRAS = {"optax": "jax"}
"""Modules whose extra has another name."""


@pytest.mark.parametrize("module", PACKAGES)
def test_the_error_names_the_extra(monkeypatch, module):
    monkeypatch.setitem(sys.modules, PACKAGES[module], None)  # importing it fails, as if it were not there
    monkeypatch.delitem(sys.modules, f"surefoot.integrations.{module}", raising=False)
    with pytest.raises(ImportError, match=rf"surefoot\[{EXTRAS.get(module, module)}\]"):
        importlib.import_module(f"surefoot.integrations.{module}")
