"""What a page is made of: thinned traces, packed arrays, facts about the problem."""

import base64
import gzip
import json
import struct

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from surefoot.problems import NetworkProblem, SimpleProblem
from surefoot.report import prepare
from surefoot.report._facts import caveat, envelope, known_constants
from surefoot.report._pack import Pack, decades, number
from surefoot.report._payload import _is_limited, payload
from surefoot.report._traces import thin
from surefoot.study import Result, Study

TRACES = arrays.arrays(float, arrays.array_shapes(min_dims=1, max_dims=3, max_side=60), elements=st.floats(0, 1e300))


@given(values=TRACES, points=st.integers(2, 40))
def test_thinning_keeps_the_extremes_of_every_line(values, points):
    _, kept = thin(values, points)
    assert (kept.min(axis=-1) == values.min(axis=-1)).all()
    assert (kept.max(axis=-1) == values.max(axis=-1)).all()


@given(values=TRACES, points=st.integers(2, 40))
def test_thinned_values_stand_at_their_steps(values, points):
    steps, kept = thin(values, points)
    assert (np.take_along_axis(values, np.broadcast_to(steps, kept.shape), axis=-1) == kept).all()
    assert (np.diff(steps, axis=-1) >= 0).all()
    assert kept.shape[-1] <= max(points, 1)


@given(st.floats(1e-31, 1e31))
def test_decades_are_exact_to_a_fifth_of_a_percent(value):
    assert 10.0 ** (decades(value) / 1000) == pytest.approx(value, rel=2e-3)


def unpacked(text):
    data = gzip.decompress(base64.b64decode(text))
    (length,) = struct.unpack("<I", data[:4])
    return json.loads(data[4 : 4 + length]), data[4 + length :]


def array_of(reference, data):
    count = int(np.prod(reference["shape"]))
    return np.frombuffer(data, f"<{reference['type']}", count, reference["at"]).reshape(reference["shape"])


def test_a_network_starts_at_its_first_batch_losses():
    """In evaluation mode nothing is known about the start: batch norm has no averages yet."""
    inputs, targets = 100 * torch.eye(2).repeat(8, 1), torch.arange(16) % 2
    problem = NetworkProblem(
        lambda: torch.nn.Sequential(torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 2)),
        (inputs, targets),
        validation=(inputs, targets),
    )
    result = Study(problem, methods="sgd", lrs=[0.01, 0.1], seeds=2, epochs=1, batch_size=8).run(processes=1)
    header, _ = unpacked(payload(result, "network"))
    assert header["start"] == {"train": result.initial_loss, "valid": result.initial_loss}
    assert result.initial_loss < 2 < result.dataset.valid_loss[0, 0, 0, 0]


def test_packed_arrays_come_back():
    pack = Pack()
    given = [np.array([[1.0, np.inf], [np.nan, -0.0]]), np.arange(5, dtype=np.uint16)]
    header, data = unpacked(pack.text({"arrays": [pack.array(values) for values in given]}))
    for reference, values in zip(header["arrays"], given, strict=True):
        assert array_of(reference, data).tobytes() == values.tobytes()


def test_numbers_that_json_lacks_become_words_that_javascript_reads():
    assert [number(value) for value in (np.inf, -np.inf, np.nan, 2.5)] == ["Infinity", "-Infinity", "NaN", 2.5]


def test_noise_and_bias_of_the_payload_are_those_of_the_bound(result):
    header, data = unpacked(payload(result, "name"))
    bound = result.bound(distance=3.0, kind="average", index="safe")
    assert (array_of(header["noise"]["average"]["safe"], data) == bound.noise.values).all()
    assert array_of(header["biasOfOne"], data) * 9.0 == pytest.approx(bound.bias.values[1])
    assert array_of(header["envelope"], data).tolist() == result.envelope().values.tolist()


def test_only_methods_whose_indices_differ_have_a_safe_trace(result):
    header, _ = unpacked(payload(result, "name"))
    assert [result.algorithms[place] for place in header["traces"]["safe"]["methods"]] == ["ngn"]


def test_more_seeds_than_lines_leave_the_range(result):
    study = Study("linear-regression", methods=["sps"], lrs=[0.1], seeds=7, epochs=2, batch_size=5)
    found = study.run()
    header, data = unpacked(payload(found, "name"))
    assert header["traces"]["lines"] == ["mean", "low", "high"]
    largest = array_of(header["traces"]["delta"]["values"], data)[0, 0, 2]
    assert (largest == decades(found.dataset.delta.values[0, 0].max(axis=0))).all()


def test_steps_without_a_limit_of_their_own_are_known():
    names = ["sgd", "sps", "ngn", "spp", "log-ngn", "power(p=0.25)", "power(p=0.75)", "elsewhere.Mine#0123"]
    assert [name for name in names if _is_limited(name)] == ["sps", "ngn", "spp", "power(p=0.75)"]


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
    values, reason = envelope(loaded)
    constants, absent = known_constants(loaded)
    assert values == result.envelope().values.tolist()
    assert constants[0]["interpolation_constant"] > 0
    assert (reason, absent) == ("", "")


class Silent(SimpleProblem):
    """mean |x − i|, which tells nothing about its minima."""

    name, features, n_rows = "silent", 1, 4

    def describe(self):
        return {}

    def evaluate(self, points, rows):
        gap = points - rows
        return abs(gap).mean(axis=1), np.sign(gap).mean(axis=1, keepdims=True)


def test_what_a_problem_does_not_know_is_left_out_with_the_reason():
    result = Study(Silent(), methods=["sps"], lrs=[0.1], seeds=1, epochs=2, batch_size=2).run()
    prepare(result)
    header, _ = unpacked(payload(result, "silent"))
    assert header["envelope"] is None
    assert "silent" in header["envelopeMissing"]
    assert "silent" in header["constantsMissing"]
    assert header["distanceOrigin"].startswith("a guess")


def test_diverged_runs_tell_step_and_last_loss(exploded):
    header, _ = unpacked(payload(exploded, "exploded"))
    entry = header["diverged"][0]
    runs = exploded.dataset.isel(algorithm=0, lr=0)
    steps = runs.diverged_at.values
    assert (entry["runs"], entry["first"], entry["last"]) == (2, steps.min(), steps.max())
    assert entry["before"] == max(runs.loss.values[seed, step - 1] for seed, step in enumerate(steps))
