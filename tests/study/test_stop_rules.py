"""Stop rules inside a study: where runs end, and that the others do not notice."""

from __future__ import annotations

import numpy as np
import pytest

from surefoot.monitor import DeltaExplosion, NonFinite, PartialBound
from surefoot.study import Study

SETTINGS = {"methods": ["sgd", "sps"], "lrs": [0.01, 0.1, 1.0, 10.0], "seeds": 2, "epochs": 10, "batch_size": 5}


@pytest.fixture(scope="module")
def plain():
    return Study("linear-regression", **SETTINGS).run().dataset


@pytest.fixture(scope="module")
def stopped():
    rules = [PartialBound(best=0.1), DeltaExplosion()]
    return Study("linear-regression", **SETTINGS, distance=1.0, stop=rules).run().dataset


def test_unstable_runs_end_early_and_good_ones_do_not(stopped):
    status = stopped.status
    assert (status.sel(algorithm="sgd", lr=[1.0, 10.0]) != "finished").all()
    assert (status.sel(algorithm="sps", lr=[0.1, 1.0, 10.0]) == "finished").all()
    assert (status == "stopped").any()


def test_runs_that_finish_are_the_same_to_the_bit(plain, stopped):
    same = (stopped.status == "finished").values
    for name in ("loss", "delta", "train_loss", "last_loss"):
        np.testing.assert_array_equal(stopped[name].values[same], plain[name].values[same])


def test_numbers_of_a_stopped_run_end_in_infinity_never_nan(plain, stopped):
    ended = (stopped.status == "stopped").values
    loss = stopped.loss.values[ended]
    assert not np.isnan(loss).any()
    assert np.isinf(loss[:, -1]).all()
    kept = np.isfinite(loss)
    np.testing.assert_array_equal(loss[kept], plain.loss.values[ended][kept])


def test_rules_are_part_of_what_a_store_keeps_apart(tmp_path):
    store = tmp_path / "study.db"
    Study("linear-regression", **SETTINGS).run(store)
    assert Study("linear-regression", **SETTINGS, stop=[NonFinite()]).plan(store).todo == 16


def test_anything_else_is_refused():
    with pytest.raises(TypeError, match="stop must be stop rules"):
        Study("linear-regression", **SETTINGS, stop=["explosion"])
