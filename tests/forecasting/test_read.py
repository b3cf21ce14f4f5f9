"""All forms of input mean the same; what makes no sense is said before anything is computed."""

from __future__ import annotations

import math
import time

import numpy as np
import pandas as pd
import pytest
from tests.forecasting.forecast_cases import curves_of, make, row, true_loss

import surefoot as sf
from surefoot.forecasting import _read, _schedules

ASK = {"lr": 0.01, "schedule": "linear", "steps": 2000}


@pytest.fixture
def expected(rows):
    return sf.forecast(rows).predict(**ASK)


@pytest.mark.parametrize(
    "form",
    [
        pd.DataFrame,
        lambda rows: pd.DataFrame(rows).set_index("run"),
        lambda rows: {key: [each.get(key) for each in rows] for key in [*rows[0], "cooldown"]},
        lambda rows: [{**each, "loss": each["final_loss"]} for each in rows],
        lambda rows: [{**each, "steps": float(each["steps"])} for each in rows],
    ],
    ids=["table", "index", "columns", "rows", "whole floats"],
)
def test_tables_of_every_kind(rows, expected, form):
    assert sf.forecast(form(rows)).predict(**ASK) == expected


def test_a_group_may_have_an_infinite_number(rows):
    fit = sf.forecast([{**row, "width": math.inf} for row in rows], groups=["width"])
    assert fit.groups == [{"width": math.inf}]


def test_files(rows, expected, tmp_path):
    pd.DataFrame(rows).to_csv(tmp_path / "runs.csv", index=False)
    pd.DataFrame(curves_of(rows)).to_csv(tmp_path / "curves.csv.gz", index=False)
    np.testing.assert_allclose(sf.forecast(tmp_path / "runs.csv").predict(**ASK), expected, rtol=1e-9)
    from_files = sf.forecast(str(tmp_path / "runs.csv"), curves=tmp_path / "curves.csv.gz").predict(**ASK)
    np.testing.assert_allclose(from_files, sf.forecast(rows, curves=curves_of(rows)).predict(**ASK), rtol=1e-6)


def test_schedules_may_be_arrays_and_functions(rows, expected):
    def factors(each):
        options = {"cooldown": each["cooldown"]} if "cooldown" in each else {}
        return _schedules.factors(each["schedule"], each["steps"], warmup=20, **options)

    plain = [{key: value for key, value in each.items() if key != "cooldown"} for each in rows]
    arrays = [{**each, "schedule": factors(given)} for each, given in zip(plain, rows, strict=True)]
    functions = [{**each, "schedule": lambda T, g=given: factors(g)} for each, given in zip(plain, rows, strict=True)]
    assert sf.forecast(arrays).predict(**ASK) == expected
    assert sf.forecast(functions).predict(**ASK) == expected


def test_losses_along_the_way_may_stand_in_the_row(rows):
    table = pd.DataFrame(curves_of(rows))
    inside = [
        {**each, "losses": dict(table[table.run == each["run"]][["step", "valid_loss"]].itertuples(index=False))}
        for each in rows
    ]
    assert sf.forecast(inside).predict(**ASK) == sf.forecast(rows, curves=table).predict(**ASK)


def test_logged_rates_count_more_than_the_schedules_name(rows):
    """A run that says cosine, but was logged to end at a tenth of its rate."""
    steps = np.arange(50, 1201, 50)
    logged = 0.01 * _schedules.factors("cosine", 1200, warmup=20, end=0.1)[steps - 1]
    log = pd.DataFrame({"run": 1, "step": steps, "lr": logged, "valid_loss": 3.0})
    ((run,), _) = _read.read([row(0.01, "cosine", 1200, 1)], log)
    assert run.rates[-1] == pytest.approx(0.001, rel=0.05)
    assert run.rates[600] == pytest.approx(0.01 * _schedules.factors("cosine", 1200, warmup=20, end=0.1)[600], rel=0.01)


@pytest.mark.parametrize("decay", [0.0, 0.5])
def test_a_last_logged_rate_of_zero_is_an_artefact_unless_the_rates_lead_there(decay):
    steps = np.arange(0, 1001, 50).astype(float)
    rates = _schedules.factors("wsd", 1000, cooldown=decay)
    logged = np.append(rates[steps[:-1].astype(int)], 0.0)
    np.testing.assert_allclose(_read.from_log(np.ones(1000), steps, logged), rates, atol=0.01)


def test_unknown_schedules_are_taken_from_the_log():
    steps = np.arange(0, 1001, 50)
    log = pd.DataFrame({"run": 0, "step": steps, "lr": np.where(steps < 500, 0.01, 0.002), "valid_loss": 3.0})
    ((run,), _) = _read.read([{**row(0.01, "constant", 1000, 0), "schedule": "wsd_twostage"}], log)
    assert (run.schedule, run.rates[300], run.rates[800]) == ("wsd_twostage", 0.01, 0.002)


def test_studies_are_runs_with_methods_as_groups():
    study = sf.Study(
        "linear-regression", methods=["sgd", "sps"], lrs=[0.003, 0.01, 0.03, 10.0], seeds=2, epochs=10, batch_size=5
    )
    fit = sf.forecast(study.run())
    assert [group["algorithm"] for group in fit.groups] == ["sps", "sgd"] or len(fit.groups) == 2
    assert any("Left out as diverged: run sgd, lr 10" in note for note in fit.notes)
    assert math.isfinite(fit.predict(lr=0.01, schedule="linear", steps=200, group={"algorithm": "sgd"}).loss)


def tracked(run_of=lambda run: {"run": run}):
    """Logs of constant and cosine runs, every 20 steps, as an experiment tracker exports them."""
    names = [(lr, schedule) for lr in (0.003, 0.01, 0.03) for schedule in ("constant", "cosine", "linear")]
    return [
        {
            **run_of(f"sunny-{run}"),
            "_step": step,
            "learning_rate": lr * rate,
            "loss": true_loss(lr, schedule, 600, at=step),
        }
        for run, (lr, schedule) in enumerate(names)
        for rates in [_schedules.factors(schedule, 600, warmup=20)]
        for step, rate in zip(range(20, 601, 20), rates[19::20], strict=True)
    ]


@pytest.mark.parametrize("run_of", [lambda run: {"run": run}, lambda run: {"Name": run}, lambda run: {}])
def test_exports_of_experiment_trackers_are_logs_of_runs(run_of, tmp_path):
    pd.DataFrame(tracked(run_of)).to_csv(tmp_path / "export.csv", index=False)
    fit = sf.forecast(tmp_path / "export.csv")
    assert len(fit.fits[()].runs) == 9
    for schedule in ("cosine", "wsd(cooldown=0.3)"):
        found = fit.predict(lr=0.01, schedule=schedule, steps=1200, warmup=20)
        assert found.loss == pytest.approx(true_loss(0.01, schedule, 1200), rel=0.01)
    assert any("9 runs, each from where 'step' begins anew" in note for note in fit.notes) == (run_of(0) == {})


def test_a_log_may_lack_losses_and_rates_at_some_steps():
    sparse = [
        {key: value for key, value in each.items() if key != ("loss" if number % 3 else "learning_rate")}
        for number, each in enumerate(tracked())
    ]
    found, _ = _read.read(sparse)
    assert [run.steps for run in found] == [600] * 9
    assert all(math.isnan(run.loss) and len(run.curve[0]) == 10 for run in found)


def test_one_row_per_run_may_have_the_names_of_a_tracker(rows, expected):
    names = {"lr": "learning_rate", "steps": "step", "final_loss": "loss"}
    renamed = [{names.get(key, key): value for key, value in each.items()} for each in rows]
    assert sf.forecast(renamed).predict(**ASK) == expected
    nameless = [{key: value for key, value in each.items() if key != "run"} for each in renamed]
    assert sf.forecast(nameless).predict(**ASK) == expected


def without(key):
    return [{name: value for name, value in each.items() if name != key} for each in make()]


def changed(**values):
    return [{**make()[0], **values}, *make()[1:]]


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        ([], "runs must have at least one row"),
        (make()[:1], "wants at least 4 runs that did not diverge.*; got 1$"),
        ([{**each, "final_loss": math.inf} for each in make()], r"got 0 \(18 more diverged\)"),
        ([make()[0]] * 6, "all 6 runs have one schedule and lr=0.003: nothing tells noise from progress"),
        ([each for each in make() if each["steps"] == 600], "all 9 runs have steps=600 and no curve"),
        (without("lr"), "runs must have a column 'lr'"),
        (without("steps"), "runs must have a column 'steps'"),
        (without("final_loss"), "runs must have a column of final losses"),
        (without("schedule"), "got no schedule and no logged rates in run 0"),
        (changed(final_loss=math.nan), "final_loss must be a number.*nan in run 0"),
        (changed(lr=math.nan), "lr must be a positive number, got nan in run 0"),
        (changed(lr=-1.0), "lr must be a positive number, got -1.0 in run 0"),
        (changed(steps=10.5), "steps must be a whole number.*10.5 in run 0"),
        (changed(warmup=600), "warmup must be at least 0, and less than the steps, got 600 in run 0"),
        (changed(schedule="wsd_twostage"), "got the schedule 'wsd_twostage' and no logged rates in run 0"),
        (changed(schedule=np.ones(5)), "a name or 600 factors, one per step.* in run 0"),
        (changed(weight_decay=-1.0), "weight_decay must be at least 0"),
        (changed(warmup="few"), "warmup must be .*, got 'few' in run 0"),
        (changed(cooldown=20), "cooldown must be from 0 to 1, got 20.* in run 0"),
    ],
)
def test_bad_runs_are_named(runs, message):
    with pytest.raises(ValueError, match=message):
        sf.forecast(runs)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "bleu"}, "loss must name a column of runs, got 'bleu'"),
        ({"groups": ["colour"]}, "groups must name a column of runs, got 'colour'"),
        ({"curves": [{"run": 0, "loss": 1.0}]}, "curves must have a column 'step'"),
        ({"curves": [{"run": 0, "step": 1, "bleu": 1.0}]}, "curves must have a column of losses"),
        ({"curves": [{"run": 99, "step": 500, "loss": 1.0}]}, "no 'run' of curves stands in runs"),
    ],
)
def test_bad_options_are_named(rows, options, message):
    with pytest.raises(ValueError, match=message):
        sf.forecast(rows, **options)


def test_what_is_no_table(tmp_path):
    with pytest.raises(TypeError, match="runs must be a CSV file's path, a table"):
        sf.forecast(3)
    with pytest.raises(FileNotFoundError, match="runs: there is no file"):
        sf.forecast(tmp_path / "none.csv")
    (tmp_path / "empty.csv").write_text("")
    with pytest.raises(ValueError, match="is not a table in CSV"):
        sf.forecast(tmp_path / "empty.csv")


@pytest.mark.parametrize("lost", [math.nan, math.inf])
def test_a_curve_that_ends_in_nothing_is_that_of_a_lost_run(rows, lost):
    table = [{**each, "final_loss": math.nan if each["run"] == 0 else each["final_loss"]} for each in rows]
    logged = curves_of(rows)
    last = max(each["step"] for each in logged if each["run"] == 0)
    ended = [{**each, "valid_loss": lost} if (each["run"], each["step"]) == (0, last) else each for each in logged]
    assert _read.read(table, ended)[0][0].loss == math.inf
    assert math.isnan(_read.read(table, logged)[0][0].loss)


def many(count, **columns):
    """So many short runs with known losses, as a table."""
    random = np.random.default_rng(0)
    lr, steps = random.choice([0.001, 0.01, 0.1], count), random.choice([100, 200, 400], count)
    loss = 1 + (lr * steps) ** -0.5 + 2 * lr + 0.01 * random.standard_normal(count)
    return pd.DataFrame({"lr": lr, "schedule": "linear", "steps": steps, "final_loss": loss, **columns})


@pytest.mark.slow
def test_a_table_of_a_million_runs_is_read_in_seconds_and_fitted_with_some_of_all_kinds(tmp_path):
    many(1_000_000).to_csv(tmp_path / "runs.csv", index=False)
    begun = time.process_time()
    runs, notes = _read.read(tmp_path / "runs.csv")
    assert time.process_time() - begun < 30
    assert len({(run.lr, run.steps) for run in runs}) == 9
    assert len(runs) <= _read.MOST
    assert notes[-1].endswith(f"{1_000_000 - len(runs)} are left out.")


def test_a_forecast_says_that_runs_were_left_out():
    fit = sf.forecast(many(3_000))
    assert fit.notes[-1].endswith("2500 are left out.")
    assert fit.predict(0.03, "linear", 400).loss == pytest.approx(1 + 12**-0.5 + 0.06, abs=0.02)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("lr", -1.0, "lr must be a positive number, got -1.0 in row 2901"),
        ("steps", 10.5, "steps must be a whole number of at least 1, got 10.5 in row 2901"),
        ("final_loss", math.nan, "final_loss must be a number .* in row 2901"),
        ("schedule", "cosin", "got the schedule 'cosin' and no logged rates in row 2901"),
    ],
)
def test_a_bad_row_among_very_many_is_named(column, value, message):
    table = many(3_000).astype({column: object})
    table.loc[2900, column] = value
    with pytest.raises(ValueError, match=message):
        sf.forecast(table)


def test_a_bad_number_in_a_long_curve_is_named():
    logged = pd.DataFrame({"run": 0, "step": np.arange(1, 1001), "loss": 1.0}).astype({"loss": object})
    logged.loc[700, "loss"] = "oops"
    with pytest.raises(ValueError, match="loss must be a number, got 'oops' in row 701 of curves"):
        sf.forecast([row(0.01, "constant", 1000, 0)], curves=logged)
