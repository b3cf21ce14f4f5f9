"""A trainer of Lightning for all who search with it."""

from __future__ import annotations

import pytest


@pytest.fixture
def make_trainer(tmp_path):
    """Makes quiet trainers; no losses have been seen yet."""
    pl = pytest.importorskip("lightning.pytorch")
    from tests.integrations.lightning_cases import SEEN

    SEEN.clear()

    def make(**options):
        quiet = {"enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
        return pl.Trainer(
            **{"accelerator": "cpu", "max_epochs": 3, "default_root_dir": tmp_path, "logger": False, **quiet, **options}
        )

    return make
