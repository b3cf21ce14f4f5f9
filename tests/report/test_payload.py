"""What a page is made of: traces, facts about the problem, words."""

import json

import numpy as np
import pytest
import torch

from surefoot.problems import ArrayProblem, NetworkProblem
from surefoot.report import prepare
from surefoot.report._payload import payload
from surefoot.report._traces import aggregated
from surefoot.report._views import caveat, is_limited
from surefoot.study import Result, Study


def test_a_network_starts_at_its_first_batch_losses():
    """In evaluation mode nothing is known about the start: batch norm has no averages yet."""
    inputs, targets = 100 * torch.eye(2).repeat(8, 1), torch.arange(16) % 2
    problem = NetworkProblem(
        lambda: torch.nn.Sequential(torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 2)),
        (inputs, targets),
        validation=(inputs, targets),
    )
    result = Study(problem, methods="sgd", lrs=[0.01, 0.1], seeds=2, epochs=1, batch_size=8).run(processes=1)
    views = json.loads(payload(result, "network"))["views"]
    assert views["last"]["start"] == views["valid"]["start"] == result.initial_loss
    assert result.initial_loss < 2 < result.dataset.valid_loss[0, 0, 0, 0]


def test_a_band_holds_most_values_and_the_line_keeps_the_mean():
    values = np.random.default_rng(0).lognormal(size=(2, 3, 4, 1000))
    edges = np.linspace(0, 1000, 51).astype(int)
    mean, low, high = np.moveaxis(aggregated(values, edges), 2, 0)
    assert mean.mean(axis=-1) == pytest.approx(values.mean(axis=(2, 3)))
    bins = values.reshape(2, 3, 4, 50, 20)
    inside = (bins >= low[:, :, None, :, None]) & (bins <= high[:, :, None, :, None])
    assert 0.75 < inside.mean() < 0.85


def test_missing_and_infinite_values_stay_so():
    values = np.array([[[[1.0, np.inf], [2.0, np.inf]], [[1.0, np.nan], [2.0, 3.0]]]]).reshape(1, 2, 2, 2)
    lines = aggregated(values, np.array([0, 1, 2]))
    assert (lines[0, 0, :, 1] == np.inf).all()
    assert np.isnan(lines[0, 1, :, 1]).all()


def test_only_methods_whose_indices_differ_have_a_safe_trace(result):
    study = json.loads(payload(result, "name"))
    names = [method["name"] for method in study["methods"]]
    assert [name for name, trace in zip(names, study["traces"]["safe"], strict=True) if trace] == ["ngn"]


def test_steps_without_a_limit_of_their_own_are_known():
    names = ["sgd", "sps", "ngn", "spp", "log-ngn", "power(p=0.25)", "power(p=0.75)", "elsewhere.Mine#0123"]
    assert [name for name in names if is_limited(name)] == ["sps", "ngn", "spp", "power(p=0.75)"]


@pytest.mark.parametrize("name", ["sgd", "sps", "spp", "sps(lower_bound=-2)", "ngn", "power(p=0.75)"])
def test_indices_that_prove_the_bound_on_least_squares(result, name):
    assert caveat(name, result) == ""


@pytest.mark.parametrize("name", ["ngn", "log-ngn", "power(p=0.75)", "elsewhere.Mine#0123"])
def test_indices_that_prove_nothing_on_logistic_losses(validated, name):
    assert "no proof" in caveat(name, validated)


def test_levels_and_networks_prove_no_bound(result):
    assert "level" in caveat("sps(lower_bound=level)", result)
    network = NetworkProblem(lambda: torch.nn.Linear(2, 2), (torch.eye(2), torch.arange(2)))
    trained = Study(network, methods="sps", lrs=[0.1], seeds=1, epochs=1, batch_size=2).run()
    assert "not convex" in caveat("sps", trained)


def test_prepared_facts_reach_a_result_from_the_file(result, folder):
    loaded = Result.load(folder / "study.db")
    assert loaded.envelope().values.tolist() == result.envelope().values.tolist()
    assert loaded.optimum() == result.optimum()


class Silent(ArrayProblem):
    """mean |x − i|, which says nothing about its minima."""

    name, features, n_rows = "silent", 1, 4

    def describe(self):
        return {}

    def evaluate(self, points, rows):
        gap = points - rows
        return abs(gap).mean(axis=1), np.sign(gap).mean(axis=1, keepdims=True)


def test_what_a_problem_does_not_know_is_left_out_with_the_reason():
    result = Study(Silent(), methods=["sps"], lrs=[0.1], seeds=1, epochs=2, batch_size=2).run()
    prepare(result)
    study = json.loads(payload(result, "silent"))
    assert "The infimum is not known; the lowest loss seen is" in study["infimum"]
    assert study["bound"]["usual"] == "free"
    assert "a run has visited" in study["bound"]["free"]
    assert study["bound"]["origin"].startswith("a guess")
