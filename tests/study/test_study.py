"""Running, resuming and refusing studies."""

import math
import sys
import tempfile
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import xarray as xr
from tests.processes import Program
from tests.runs.network_cases import make_study

from surefoot.monitor import DeltaExplosion, NonFinite, PartialBound
from surefoot.problems import ArrayProblem
from surefoot.runs._store import Store
from surefoot.study import LowerBoundWarning, Method, Plan, Result, Study, StudyInterrupted
from surefoot.theory import models


def test_the_store_changes_no_bit(study, result, tmp_path, assert_same_bits):
    assert_same_bits(study.run(tmp_path / "s.db").dataset, result.dataset)


def test_a_file_alone_gives_the_same_result(study, result, tmp_path, assert_same_bits):
    study.run(tmp_path / "s.db")
    loaded = Result.load(tmp_path / "s.db")
    assert_same_bits(loaded.dataset, result.dataset)
    assert loaded.optimum() == result.optimum()


def counted(study, store):
    """The number of runs that were computed."""
    calls = []
    study.run(store, progress=lambda done, total: calls.append((done, total)))
    assert all(done <= total for done, total in calls)
    return calls[-1][0] if calls else 0


def test_nothing_is_computed_twice(tmp_path, make):
    study = make(lrs=[0.01, 0.1])
    assert counted(study, tmp_path / "s.db") == 24
    assert counted(study, tmp_path / "s.db") == 0


def test_a_larger_study_computes_what_is_missing(tmp_path, make):
    make(lrs=[0.01, 0.1], seeds=2).run(tmp_path / "s.db")
    assert make(lrs=[0.01, 0.1, 1.0], seeds=2).plan(tmp_path / "s.db") == Plan(24, 16, 8)
    assert counted(make(lrs=[0.01, 0.1, 1.0], seeds=2), tmp_path / "s.db") == 8


@pytest.mark.parametrize(
    "change",
    [
        {"epochs": 5},
        {"batch_size": 6},
        {"schedule": "linear"},
        {"sampling": "iid"},
        {"every": 2},
        {"problem_options": {"noise": 1.0}},
        {"lower_bound": -2.0, "methods": ["sps"]},
        {"seeds": [7]},
    ],
)
def test_what_changes_a_number_makes_another_run(tmp_path, change, make):
    make(lrs=[0.01]).run(tmp_path / "s.db")
    assert make(lrs=[0.01], **change).plan(tmp_path / "s.db").done == 0


def test_a_plan_without_a_store_has_nothing_done(study, tmp_path):
    assert study.plan() == study.plan(tmp_path / "none.db") == Plan(72, 0, 72)
    assert not list(tmp_path.iterdir())


def test_two_studies_in_one_file_load_apart(tmp_path, make):
    make(lrs=[0.01], epochs=2).run(tmp_path / "s.db")
    make(lrs=[0.01], epochs=3).run(tmp_path / "s.db")
    assert Result.load(tmp_path / "s.db").settings["epochs"] == 3
    assert Result.load(tmp_path / "s.db", study=0).settings["epochs"] == 2
    with pytest.raises(ValueError, match="study must be a position below 2"):
        Result.load(tmp_path / "s.db", study=2)


def test_ctrl_c_keeps_the_finished_runs_and_says_how_to_go_on(tmp_path, result, assert_same_bits, study):

    def interrupt(done, total):
        raise KeyboardInterrupt

    with pytest.raises(StudyInterrupted, match=r"interrupted after \d+ of 72 runs; .*s\.db' to resume"):
        study.run(tmp_path / "s.db", progress=interrupt)
    done = study.plan(tmp_path / "s.db").done
    assert done > 0
    assert counted(study, tmp_path / "s.db") == 72 - done
    assert_same_bits(Result.load(tmp_path / "s.db").dataset, result.dataset)


def test_ctrl_c_without_a_store_says_that_nothing_is_kept(study):
    def interrupt(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match="nothing was stored"):
        study.run(progress=interrupt)


def test_an_unfinished_study_loads_with_missing_runs(tmp_path, make):
    make(lrs=[0.01], seeds=1).run(tmp_path / "s.db")
    larger = make(lrs=[0.01, 0.1], seeds=1)
    with Store.write(tmp_path / "s.db") as store:
        store.register(larger._context(), larger._settings())
    loaded = Result.load(tmp_path / "s.db")
    assert (loaded.dataset.status.sel(lr=0.1) == "missing").all()
    assert np.isnan(loaded.bound(1.0).total.sel(lr=0.1)).all()
    assert np.isfinite(loaded.bound(1.0).total.sel(lr=0.01)).all()


def test_progress_shows_a_bar(study, capsys):
    study.run(progress=True)
    assert "72/72" in capsys.readouterr().err


def test_model_objects_and_names_give_the_same_runs(tmp_path, make):
    make(methods=["sps(lower_bound=-2)"], lrs=[0.1]).run(tmp_path / "s.db")
    assert make(methods=[models.Truncated(lower_bound=-2)], lrs=[0.1]).plan(tmp_path / "s.db").todo == 0


def test_custom_factors_equal_the_schedule_they_copy(tmp_path, make):
    from surefoot.theory import schedules

    make(schedule="linear", lrs=[0.1]).run(tmp_path / "s.db")
    same = make(schedule=schedules.linear(100), lrs=[0.1])
    assert same.plan(tmp_path / "s.db").todo == 0
    assert same.run(tmp_path / "s.db").bound(1.0).equals(make(schedule="linear", lrs=[0.1]).run().bound(1.0))


def test_a_lower_bound_above_the_loss_warns_once_with_count_and_step(make):
    study = make(methods=["sps(lower_bound=0.2)"], lrs=[0.01, 0.1])
    with pytest.warns(
        LowerBoundWarning, match=r"sps\(lower_bound=0\.2\): the loss was below the lower bound at"
    ) as seen:
        found = study.run().dataset
    assert len(seen) == 1
    below = found.loss.values < 0.2
    assert f"at {below.sum()} steps" in str(seen[0].message)
    assert (found.violations == below.sum(axis=-1)).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lrs": [0.1, -0.1]}, r"lrs\[1\] must be above 0, got -0\.1"),
        ({"lrs": [0.0]}, r"lrs\[0\] must be above 0, got 0\.0"),
        ({"lrs": [math.nan]}, r"lrs\[0\] must be a finite number, got nan"),
        ({"lrs": [math.inf]}, r"lrs\[0\] must be a finite number, got inf"),
        ({"lrs": [0.1, 0.2, 0.1]}, r"lrs must be distinct, got 0\.1 2 times"),
        ({"lrs": []}, "lrs must hold at least one rate"),
        ({"lrs": "0.1"}, r"lrs must be a list of rates or \{from, to, count\}, got '0\.1'"),
        ({"lrs": None}, "lrs must be a list of rates"),
        ({"lrs": ["a"]}, r"lrs\[0\] must be a finite number, got 'a'"),
        ({"lrs": [10**400]}, r"lrs\[0\] must be a finite number, got 1000"),
        ({"lrs": [1j]}, r"lrs\[0\] must be a finite number, got 1j"),
        ({"batch_size": 51}, "batch_size must be at most the 50 training rows of 'linear-regression', got 51"),
        ({"batch_size": 0}, "batch_size must be a whole number of at least 1, got 0"),
        ({"methods": []}, "methods must name at least one method"),
        ({"methods": ["adam"]}, "methods must not hold 'adam' on 'linear-regression': it is for networks"),
        ({"epochs": -1}, "epochs must be a whole number of at least 1, got -1"),
        ({"epochs": 1.5}, r"epochs must be a whole number of at least 1, got 1\.5"),
        ({"seeds": 0}, "seeds must be a whole number of at least 1, got 0"),
        ({"seeds": [0, 2**31]}, "seeds must be at most 2147483647"),
        ({"seeds": "3"}, "seeds must be a number of seeds or a list of them, got '3'"),
        ({"schedule": "cosin"}, "schedule must be .*, got 'cosin'; did you mean 'cosine'"),
        ({"schedule": np.zeros(100)}, "schedule must have positive, finite factors"),
        ({"schedule": ["high", "low"]}, r"schedule must be a name or 100 factors, one per step, got \['high', 'low'\]"),
        ({"schedule": np.ones(99)}, "schedule must be a name or 100 factors, one per step"),
        ({"sampling": "idd"}, "sampling must be .*, got 'idd'; did you mean 'iid'"),
        ({"sampling": None}, "sampling must be one of shuffle, iid, got None"),
        ({"lower_bound": math.inf}, "lower_bound must be a finite number, got inf"),
        ({"every": 101}, "every must be at most the 100 steps of a run, got 101"),
        ({"distance": -1.0}, r"distance must be above 0, got -1\.0"),
    ],
)
def test_bad_input_is_refused_before_any_work(change, message, make):
    with pytest.raises(ValueError, match=message):
        make(**change)


@pytest.mark.parametrize(
    "lrs", [0.5, np.float32(0.5), np.array(0.5), np.array([0.5]), xr.DataArray([0.5]), (rate for rate in [0.5])]
)
def test_rates_come_from_whatever_holds_numbers(lrs, make):
    assert make(lrs=lrs).lrs == (0.5,)


def test_bad_problems_are_refused(make, settings):
    with pytest.raises(ValueError, match="linear-regression"):
        Study("linear-regresion", **settings)
    with pytest.raises(TypeError, match="problem must be a name, 'module:factory' or a Problem, got 3"):
        Study(3, **settings)
    with pytest.raises(ValueError, match="problem_options are for problems by name"):
        Study(make().problem, **settings, problem_options={"n": 3})
    with pytest.raises(TypeError, match="problem_options must be a table of options by name, got 3"):
        make(problem_options=3)
    with pytest.raises(ValueError, match="noise must be a finite number, got 'high'"):
        make(problem_options={"noise": "high"})
    with pytest.raises(ValueError, match="data is given twice"):
        make(data="vowel", problem_options={"data": "dna"})


# Stop rules: where runs end, and that the others do not notice.

STOPPED = {"methods": ["sgd", "sps"], "lrs": [0.01, 0.1, 1.0, 10.0], "seeds": 2, "epochs": 10, "batch_size": 5}


@pytest.fixture(scope="module")
def plain():
    return Study("linear-regression", **STOPPED).run().dataset


@pytest.fixture(scope="module")
def stopped():
    rules = [PartialBound(best=0.1), DeltaExplosion()]
    return Study("linear-regression", **STOPPED, distance=1.0, stop=rules).run().dataset


def test_unstable_runs_end_early_and_good_ones_do_not(stopped):
    status = stopped.status
    assert (status.sel(algorithm="sgd", lr=[1.0, 10.0]) != "finished").all()
    assert (status.sel(algorithm="sps", lr=[0.1, 1.0, 10.0]) == "finished").all()
    assert (status == "stopped").any()


def test_runs_that_finish_are_the_same_to_the_bit(plain, stopped):
    same = (stopped.status == "finished").values
    for name in ("loss", "delta", "train_loss", "last_loss"):
        np.testing.assert_array_equal(stopped[name].values[same], plain[name].values[same])


def test_rules_are_part_of_what_a_store_keeps_apart(tmp_path):
    store = tmp_path / "study.db"
    Study("linear-regression", **STOPPED).run(store)
    assert Study("linear-regression", **STOPPED, stop=[NonFinite()]).plan(store).todo == 16


def test_what_is_no_stop_rule_is_refused():
    with pytest.raises(TypeError, match="stop must be stop rules"):
        Study("linear-regression", **STOPPED, stop=["explosion"])


SCALE = 1.0


class Scaled(ArrayProblem):
    """Its numbers depend on a number of its module."""

    name, n_rows, features = "scaled", 1, 1

    def describe(self):
        return {}

    def initial_point(self):
        return np.ones(1)

    def evaluate(self, points, rows):
        return SCALE * (points**2).sum(axis=-1), 2 * SCALE * points


def test_what_has_changed_since_the_last_run_is_computed_anew(tmp_path, monkeypatch):
    study = Study(Scaled(), methods="sgd", lrs=[0.1], seeds=1, epochs=5, batch_size=1)
    before = study.run(tmp_path / "s.db").dataset.last_loss.item()
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    assert study.plan(tmp_path / "s.db").todo == 1
    assert study.run(tmp_path / "s.db").dataset.last_loss.item() == study.run().dataset.last_loss.item() != before


def test_what_runs_change_is_not_new(tmp_path):
    class Remembers(Scaled):
        def __init__(self):
            self.seen = []

        def evaluate(self, points, rows):
            self.seen.append(len(self.seen))
            return super().evaluate(points, rows)

    study = Study(Remembers(), methods="sgd", lrs=[0.1], seeds=1, epochs=5, batch_size=1)
    study.run(tmp_path / "s.db", processes=1)
    assert study.plan(tmp_path / "s.db").todo == 0
    assert counted(study, tmp_path / "s.db") == 0


def test_a_result_stays_with_its_file_when_the_folder_changes(tmp_path, monkeypatch, make):
    monkeypatch.chdir(tmp_path)
    found = make(lrs=[0.1]).run("s.db")
    loaded = Result.load("s.db")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert found.dataset.status.size == loaded.dataset.status.size == 12


def test_a_study_in_which_nothing_is_finite_can_be_shown():
    class Lost(Scaled):
        def evaluate(self, points, rows):
            return np.full(len(points), np.nan), points

    found = Study(Lost(), methods="sgd", lrs=[0.1], seeds=1, epochs=5, batch_size=1).run()
    assert "diverged" in found.dataset.status.values
    assert np.isinf(found.bound(bias="pool").total.values).all()
    assert "sgd" in str(found).lower()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"methods": ["sgd", "ngn"]}, "methods must be 'sgd', 'sps' or 'spp' with PartialBound, got 'ngn'"),
        ({"methods": "sps(lower_bound=level)"}, "with PartialBound, got 'sps\\(lower_bound=level\\)'"),
        ({"every": 2}, "every must be 1 with PartialBound, which needs the index of every step, got 2"),
        ({"problem": "digits-mlp"}, "stop must not hold PartialBound on '.*': its proof needs a convex loss"),
    ],
)
def test_a_partial_bound_is_refused_where_it_proves_nothing(change, message):
    settings = {"problem": "linear-regression", "methods": "sgd", "lrs": 0.1, "epochs": 1, "batch_size": 5}
    with pytest.raises(ValueError, match=message):
        Study(**(settings | change), stop=PartialBound(best=1.0))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lrs": {"from": 1e-3, "to": 1.0, "count": 10**9}}, "lrs.count must be at most 100000, got 1000000000"),
        ({"seeds": 10**9}, "seeds must be at most 100000, or a list of them, got 1000000000"),
        ({"epochs": 10**9}, "epochs must be at most 10000000, which are 100000000 steps, got 1000000000"),
        (
            {"epochs": 10**7},
            "every must be at least 10 for runs of 100000000 steps",
        ),
    ],
)
def test_numbers_that_would_fill_the_memory_are_refused(change, message):
    settings = {"methods": "sgd", "lrs": 0.1, "epochs": 1, "batch_size": 5}
    with pytest.raises(ValueError, match=message):
        Study("linear-regression", **(settings | change))


def test_a_complete_study_is_read_from_a_folder_that_cannot_be_written(tmp_path):
    """As another user, because permissions do not hold for root."""
    settings = {"methods": ["sgd"], "lrs": [0.1], "seeds": 1, "epochs": 1, "batch_size": 5}
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "s.db")
        Study("linear-regression", **settings).run(path)
        path.chmod(0o444)
        path.parent.chmod(0o555)
        program = (
            "import os, sys\nfrom surefoot.study import Result, Study\n"
            f"study = Study('linear-regression', **{settings!r})\n"
            "study.run().bound()\n"  # loads every module, which the other user may not be able to read
            "if os.geteuid() == 0: os.setuid(65534)\n"
            "totals = [result.bound().total for result in (study.run(sys.argv[1]), Result.load(sys.argv[1]))]\n"
            "print(float(totals[0][0, 0]) == float(totals[1][0, 0]))"
        )
        with Program(program, path) as process:
            assert process.communicate(timeout=120) == ("True\n", "")
        path.parent.chmod(0o755)


def test_the_last_study_is_told_by_its_order_in_the_file_not_by_the_clock(tmp_path, monkeypatch):
    for year, lr in ((2030, 0.1), (2020, 0.2)):
        clock = SimpleNamespace(now=lambda zone, year=year: datetime(year, 1, 1, tzinfo=zone))
        monkeypatch.setattr("surefoot.runs._store.datetime", clock)
        Study("linear-regression", methods="sgd", lrs=lr, seeds=1, epochs=1, batch_size=5).run(tmp_path / "s.db")
    assert Result.load(tmp_path / "s.db").lrs.tolist() == [0.2]


@pytest.mark.parametrize("kind", ["convex", "network"])
def test_a_step_is_a_few_calls_below_run(kind):
    """Whoever reads a traceback, or a profile, finds the study's step soon."""
    depths = []

    def note():
        frame, depth = sys._getframe(1), 0
        while frame.f_code is not Study.run.__code__:
            frame, depth = frame.f_back, depth + 1
        depths.append(depth - 1)

    class Noted(Scaled):
        def loss_and_gradient(self, points, rows):
            note()
            return super().loss_and_gradient(points, rows)

    def noted(parameters, lr):
        class Noting(torch.optim.SGD):
            def zero_grad(self, set_to_none=True):
                note()
                super().zero_grad(set_to_none)

        return Noting(parameters, lr)

    if kind == "convex":
        Study(Noted(), methods="sgd", lrs=[0.1], seeds=1, epochs=2, batch_size=1).run(processes=1)
    else:
        make_study(methods=[Method("mine", optimizer=noted)], lrs=[0.1], epochs=1).run(processes=1)
    assert 0 < max(depths) <= 8, depths
