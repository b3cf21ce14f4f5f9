"""A bound that the runs of a study share: what it spares depends on time, what comes out does not."""

from __future__ import annotations

import numpy as np
import pytest

from surefoot.monitor import NonFinite, PartialBound, StabilityMonitor
from surefoot.runs._store import Store
from surefoot.study import Study
from surefoot.theory import bounds

SETTINGS = {
    "problem": "linear-regression",
    "problem_options": {"d": 1000},
    "methods": ["sgd", "sps", "ngn"],
    "lrs": np.geomspace(1e-3, 1e1, 9).tolist(),
    "seeds": 3,
    "epochs": 25,
    "batch_size": 5,
    "distance": 1.0,
}
NETWORK = {
    "problem": "digits-mlp",
    "problem_options": {"hidden": [8]},
    "methods": ["sgd", "ngn"],
    "lrs": [0.1, 1.0, 100.0],
    "seeds": 1,
    "epochs": 3,
    "batch_size": 64,
    "distance": 5.0,
}
CERTIFIED = PartialBound("shared", slack=1.0, with_bias=True, until=1.0)


def bounds_of(result):
    """Ω of every run, ∞ unless it is finished."""
    data = result.dataset
    rates = data.lr.values[None, :, None, None] * np.ones(data.sizes["step"])
    found = bounds.last_iterate(np.broadcast_to(rates, data.delta.shape), data.delta.values, 1.0).total
    return np.where(data.status == "finished", found, np.inf)


@pytest.fixture(scope="module")
def whole():
    return Study(**SETTINGS).run(processes=1)


@pytest.fixture(scope="module")
def certified():
    return Study(**SETTINGS, stop=CERTIFIED).run(processes=1)


def test_the_run_with_the_smallest_bound_is_the_one_of_the_whole_grid(whole, certified):
    expected = bounds_of(whole)
    finished = (certified.dataset.status == "finished").values
    assert finished.sum() == 1
    assert expected[finished] == expected.min()
    np.testing.assert_allclose(eval(certified.settings["stop"][0]).best, expected.min(), rtol=1e-12)


def test_what_is_kept_of_a_run_is_what_the_whole_run_has(whole, certified):
    for name in ("loss", "delta", "train_loss"):
        kept = np.isfinite(certified.dataset[name].values)
        assert 0.01 < kept.mean() < 0.9
        np.testing.assert_array_equal(certified.dataset[name].values[kept], whole.dataset[name].values[kept])


@pytest.mark.parametrize("slack", [1.0, 3.0])
def test_it_is_the_rule_with_the_smallest_bound(slack, assert_same_bits):
    rule = PartialBound("shared", slack=slack)
    shared = Study(**SETTINGS, stop=[rule, NonFinite()]).run(processes=1)
    plain = Study(**SETTINGS, stop=[eval(shared.settings["stop"][0]), NonFinite()]).run(processes=1)
    assert (shared.dataset.status == "stopped").any()
    assert_same_bits(shared.dataset, plain.dataset)


def test_who_is_finished_when_changes_no_bit(certified, assert_same_bits, tmp_path):
    others = Study(**{**SETTINGS, "methods": SETTINGS["methods"][::-1]}, stop=CERTIFIED).run(tmp_path / "s.db")
    found = others.dataset.sel(algorithm=SETTINGS["methods"])
    assert_same_bits(found, certified.dataset)
    parallel = Study(**SETTINGS, stop=CERTIFIED).run(processes=2)
    assert_same_bits(parallel.dataset, certified.dataset)


def test_a_network_spares_the_steps_of_runs_that_are_ruled_out(tmp_path, assert_same_bits):
    path = tmp_path / "s.db"
    study = Study(**NETWORK, stop=CERTIFIED)
    result = study.run(path, processes=1)
    with Store.read(path) as store:
        taken = {found.key: np.isfinite(found.steps["loss"]).sum() for found in store.traces(study._context())}
    assert len(taken) == 6
    assert min(taken.values()) < study.steps
    assert not list(tmp_path.glob("*.runs"))
    assert_same_bits(result.dataset, study.run(processes=2).dataset)


def test_an_interrupted_study_goes_on(tmp_path, certified, assert_same_bits):
    class Enough(Exception):
        pass

    def interrupt(done, total):
        raise Enough

    study, path = Study(**SETTINGS, stop=CERTIFIED), tmp_path / "s.db"
    with pytest.raises(Enough):
        study.run(path, processes=1, progress=interrupt)
    assert 0 < study.plan(path).done < study.plan(path).total
    assert_same_bits(study.run(path).dataset, certified.dataset)


def test_what_it_needs():
    with pytest.raises(ValueError, match="distance must be given"):
        Study(**{**SETTINGS, "distance": None}, stop=CERTIFIED)
    with pytest.raises(ValueError, match=r"slack must be at least 1 with best='shared', got 0\.5"):
        PartialBound("shared", slack=0.5)


def test_a_monitor_has_nobody_to_share_with():
    import torch

    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    with pytest.raises(ValueError, match="best='shared' is for the runs of a study"):
        StabilityMonitor(optimizer, stop=CERTIFIED)
