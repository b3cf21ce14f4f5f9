"""Data set, bound, plot and export of a result."""

import json
import math

import numpy as np
import pytest
import xarray as xr
from matplotlib.figure import Figure

from surefoot.runs._types import EPOCH_FIELDS, FINAL_FIELDS, STEP_FIELDS
from surefoot.study import Result
from surefoot.theory import bounds, models


def test_the_data_set_has_the_promised_form(result, settings):
    data = result.dataset
    assert dict(data.sizes) == {"algorithm": 4, "lr": 6, "seed": 3, "step": 100, "epoch": 11}
    for names, dims in (
        (STEP_FIELDS, ("algorithm", "lr", "seed", "step")),
        (EPOCH_FIELDS, ("algorithm", "lr", "seed", "epoch")),
        (FINAL_FIELDS, ("algorithm", "lr", "seed")),
    ):
        for name in names:
            assert data[name].dims == dims
            assert data[name].dtype == np.float64
    assert data.status.dtype.kind == "U"
    assert data.diverged_at.dtype.kind == "i"
    assert data.lr.values.tolist() == sorted(settings["lrs"])
    assert json.loads(data.attrs["settings"])["batch_size"] == 5


def test_only_what_was_not_measured_is_nan(result):
    for name in (*STEP_FIELDS, "train_loss", *FINAL_FIELDS):
        assert not np.isnan(result.dataset[name]).any(), name


def test_divergence_is_infinite_and_has_its_step(result):
    worst = result.dataset.sel(algorithm="sgd", lr=100.0, seed=0)
    assert worst.status == "diverged"
    at = int(worst.diverged_at)
    assert at >= 0
    assert np.isinf(worst.delta[at:]).all()
    assert math.isinf(worst.last_loss)
    assert (result.dataset.diverged_at.sel(algorithm="sps") == -1).all()


@pytest.mark.parametrize("kind", ["last", "average"])
def test_the_bound_is_that_of_the_theory(result, kind):
    found = result.bound(2.0, kind=kind)
    compute = bounds.last_iterate if kind == "last" else bounds.average_iterate
    with np.errstate(over="ignore"):
        deltas = result.dataset.delta.values.mean(axis=2)
    expected = compute(np.broadcast_to(result.lrs[:, None], deltas.shape[1:]), deltas, 2.0)
    np.testing.assert_array_equal(found.bias.values, np.broadcast_to(expected.bias, found.bias.shape))
    np.testing.assert_array_equal(found.noise.values, expected.noise)
    np.testing.assert_array_equal(found.total.values, expected.total)


def test_the_safe_index_is_the_models_for_sgd_sps_and_spp_and_larger_for_ngn(result):
    model, safe = result.deltas(), result.deltas("safe")
    for name in ("sgd", "sps", "spp"):
        np.testing.assert_allclose(safe.sel(algorithm=name), model.sel(algorithm=name), rtol=1e-12, atol=0)
    assert (safe.sel(algorithm="ngn") >= model.sel(algorithm="ngn")).all()
    direct = result.dataset.sel(algorithm="ngn", lr=1.0, seed=1)
    expected = models.safe_delta(direct.loss.values, direct.grad_sq.values, 1.0, direct["size"].values)
    np.testing.assert_array_equal(safe.sel(algorithm="ngn", lr=1.0, seed=1), expected)


def test_the_envelope_bias_is_the_problems_and_stays_in_the_file(study, tmp_path):
    found = study.run(tmp_path / "s.db")
    with pytest.raises(ValueError, match="the envelope was not computed when the study ran"):
        Result.load(tmp_path / "s.db").bound(bias="envelope")
    bias = found.bound(bias="envelope").bias
    expected = study.problem.envelope(found.lrs * 100)
    np.testing.assert_allclose(bias.sel(algorithm="spp"), expected, rtol=1e-12)
    assert Result.load(tmp_path / "s.db").bound(bias="envelope").identical(found.bound(bias="envelope"))


def test_the_distance_is_the_true_one_if_nothing_else_is_said(result, study, make):
    true = np.linalg.norm(study.problem.optimum().point - study.problem.initial_point())
    assert result.bound().attrs["distance"] == pytest.approx(true, rel=1e-12)
    assert make(distance=3.0).run().bound().attrs["distance"] == 3.0


def test_every_kept_index_stands_for_the_steps_up_to_the_next(make):
    sparse = make(every=3, lrs=[0.01]).run()
    full = make(lrs=[0.01]).run()
    assert sparse.dataset.step.values.tolist() == list(range(0, 100, 3))
    np.testing.assert_array_equal(sparse.dataset.delta, full.dataset.delta[..., ::3])
    np.testing.assert_allclose(sparse.bound(1.0).noise, full.bound(1.0).noise, rtol=0.5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"distance": -1.0}, "distance must be above 0"),
        ({"distance": math.nan}, "distance must be a finite number"),
        ({"bias": "moreau"}, "bias must be None"),
        ({"distance": 1.0, "bias": "envelope"}, "exclude each other"),
        ({"index": "true"}, "index must be 'model' or 'safe', got 'true'"),
        ({"kind": "first"}, "kind must be 'last' or 'average', got 'first'"),
    ],
)
def test_bad_questions_are_refused(result, options, message):
    with pytest.raises(ValueError, match=message):
        result.bound(**options)


def test_sensitivity_tells_sgd_from_sps(result, settings):
    table = result.sensitivity(distance=1.0)
    assert [row.algorithm for row in table] == settings["methods"]
    assert table["sgd"].high == 0.1
    assert table["sps"].high == 100.0
    assert table["sps"].decades > table["sgd"].decades


def test_without_an_optimum_the_smallest_loss_seen_stands_in(result):
    settings = {**result.settings, "problem": {**result.settings["problem"], "fingerprint": "another"}}
    nameless = Result(settings, result._store, result._context)
    assert nameless.optimal_loss == float(min(nameless.dataset[name].min() for name in ("train_loss", *FINAL_FIELDS)))
    with pytest.raises(ValueError, match=r"distance must be given \(or bias='envelope' or 'pool'\)"):
        nameless.bound()


def test_the_plot_shows_losses_bounds_and_what_diverged(result):
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    ax = result.plot(1.0)
    lines = [line for line in ax.lines if len(line.get_xdata())]  # the others explain the legend
    solid = [line for line in lines if line.get_linestyle() == "-"]
    assert len(solid) == 4
    np.testing.assert_array_equal(solid[1].get_ydata(), result.dataset.last_loss.sel(algorithm="sps").mean("seed"))
    dashed = [line for line in lines if line.get_linestyle() == "--"]
    assert len(dashed) == 4
    above = result.optimal_loss + result.bound(1.0).total.sel(algorithm="sps")
    np.testing.assert_allclose(dashed[1].get_ydata(), above)  # Ω bounds f − f⋆, the picture shows f
    edge = {line.get_marker(): line for line in lines if line.get_fillstyle() == "none"}
    losses = result.dataset.last_loss.sel(algorithm="sgd").mean("seed")
    for marker, chosen in (("^", np.isfinite(losses)), ("x", np.isinf(losses))):
        wanted = losses.lr.values[chosen & (losses > 10 * result.initial_loss)]
        assert edge[marker].get_color() == solid[0].get_color() if len(wanted) else marker not in edge  # SGD alone
        assert not len(wanted) or edge[marker].get_xdata().tolist() == wanted.tolist()
        assert not len(wanted) or set(edge[marker].get_ydata()) == {ax.get_ylim()[1]}
    assert ax.get_xscale() == ax.get_yscale() == "log"
    plt.close(ax.figure)


def test_netcdf_comes_back(result, tmp_path):
    result.dataset.to_netcdf(tmp_path / "r.nc")
    with xr.open_dataset(tmp_path / "r.nc") as found:
        assert found.load().identical(result.dataset)


@pytest.mark.parametrize(("table", "rows"), [("runs", 72), ("steps", 72 * 100), ("epochs", 72 * 11)])
def test_tables_hold_all_that_is_in_the_data_set(result, table, rows):
    frame = result.to_frame(table)
    assert len(frame) == rows
    found = frame.set_index([dim for dim in ("algorithm", "lr", "seed", "step", "epoch") if dim in frame]).to_xarray()
    for name in found.data_vars:
        assert found[name].reindex_like(result.dataset).equals(result.dataset[name]), name


def test_a_table_that_is_none(result):
    with pytest.raises(ValueError, match="table must be one of runs, steps, epochs, got 'all'"):
        result.to_frame("all")


def test_numbers_at_the_end_of_the_float_range_can_be_drawn(make):
    """SGD is far beyond its limit, but the steps are too few to reach ∞."""
    result = make(methods=["sgd"], lrs=[0.1, 1e4], epochs=3).run()
    assert 1e250 < float(result.bound(1.0).total.max()) < np.inf
    axes = result.plot(1.0, ax=Figure().subplots())
    assert axes.get_ylim()[1] == pytest.approx(10 * result.initial_loss)


@pytest.mark.parametrize("start", [0.0, -1.0, np.inf])
def test_a_start_without_a_logarithm_can_be_drawn(result, start):
    """A study that starts at its minimum, whose losses are below 0, or whose first loss is no number."""
    other = Result(result.settings, result._store, result._context, problem=result.problem)
    other.initial_loss = start
    low, high = other.plot(1.0, ax=Figure().subplots()).get_ylim()
    assert 0 < low < high < np.inf


def test_the_pool_holds_the_points_whose_loss_is_known(result):
    losses, distances = result.pool()
    data = result.dataset.sel(algorithm="sps", lr=result.lrs[1], seed=1)
    assert np.isfinite(losses).all()
    assert np.isfinite(distances).all()
    for loss, distance in (
        (data.train_loss[0], 0.0),
        (data.train_loss[3], data.distance[30]),
        (data.last_loss, data.distance[99]),
    ):
        assert ((losses == float(loss)) & (distances == float(distance))).any()


def test_the_pool_gives_a_bias_no_smaller_than_the_envelope(result):
    pool, envelope = (result.bound(bias=bias) for bias in ("pool", "envelope"))
    assert (pool.bias >= envelope.bias * (1 - 1e-9)).all()
    assert (pool.bias <= result.initial_loss).all()
    np.testing.assert_array_equal(pool.noise, envelope.noise)
