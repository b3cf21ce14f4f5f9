"""Killed and resumed: the same answer, and no step taken twice."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch
from tests.runs.torch_recipe import X, Y, batches, recipe, squared
from torch import nn

from surefoot.problems import LinearRegression
from surefoot.runs import States
from surefoot.search import ProblemRun, SearchError, TorchRun, tune
from surefoot.study import Result, StoreError, Study

LRS = np.geomspace(1e-3, 1e2, 9)
SEARCHES = [{}, {"seeds": 2, "refine": 1}]


@pytest.fixture(scope="module")
def numbers(regression):
    """Rates, losses and indices of real runs."""
    lrs = list(np.geomspace(1e-3, 1e2, 65))  # refinements are among them
    study = Study(regression, methods="sgd", lrs=lrs, epochs=10, batch_size=5, seeds=2)
    data = study.run().dataset.isel(algorithm=0)
    return study.lrs, data.loss.values, data.delta.values


@pytest.fixture
def runs(tape, numbers):
    """Runs with these numbers, which count their steps."""
    return tape(*numbers)


class Nearest:
    """Finds the recorded run of a rate up to rounding, as refined rates need."""

    def __init__(self, runs):
        self.runs = runs

    def __call__(self, lr, seed):
        return self.runs(min(self.runs.lrs, key=lambda known: abs(np.log(known / lr))), seed)


@pytest.fixture(scope="module", params=SEARCHES)
def search(request, tape, numbers):
    """The options of a search, and what it finds if nobody interrupts it."""
    return request.param, tune(Nearest(tape(*numbers)), LRS, 100, **request.param)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_interrupted_and_resumed(runs, search, tmp_path, share):
    options, whole = search
    runs.fail_after = int(share * whole.steps)
    with pytest.raises(KeyboardInterrupt):
        tune(Nearest(runs), LRS, 100, store=tmp_path / "search", **options)
    runs.fail_after = None
    again = tune(Nearest(runs), LRS, 100, store=tmp_path / "search", **options)
    assert (again.lr, again.loss, again.steps) == (whole.lr, whole.loss, whole.steps)
    assert again.table == whole.table
    assert not runs.repeated
    assert runs.counts["total"] == whole.steps


def test_a_finished_search_costs_nothing_when_asked_again(runs, tmp_path):
    first = tune(Nearest(runs), LRS, 100, store=tmp_path / "search")
    taken = runs.counts["total"]
    second = tune(Nearest(runs), LRS, 100, store=tmp_path / "search")
    assert second.table == first.table
    assert runs.counts["total"] == taken
    assert second.run.step == 100


@pytest.mark.parametrize("max_states", [1, 2, 30])
def test_few_states_in_memory(regression, max_states):
    """Where states are kept does not change a bit of the answer."""
    runs = ProblemRun(regression, "ngn", batch_size=5)
    few = tune(runs, LRS, 100, max_states=max_states, seeds=2)
    many = tune(runs, LRS, 100, max_states=100, seeds=2)
    assert few.table == many.table


def test_states_are_spilled_beyond_the_cap(regression, monkeypatch):
    spilled, save = [], States.save

    def note(self, record, state):
        spilled.append(self.path(record.key))
        save(self, record, state)

    monkeypatch.setattr(States, "save", note)
    tune(ProblemRun(regression, "ngn", batch_size=5), LRS, 100, max_states=2)
    assert spilled
    assert not any(path.parent.exists() for path in spilled)  # and cleaned up


def test_a_store_of_another_search_is_refused(regression, tmp_path):
    runs = ProblemRun(regression, "sgd", batch_size=5)
    tune(runs, LRS, 50, store=tmp_path / "search")
    with pytest.raises(ValueError, match="belongs to another search: horizon is 50 there and 60 here"):
        tune(runs, LRS, 60, store=tmp_path / "search")
    with pytest.raises(ValueError, match="belongs to another search: methods"):
        tune(ProblemRun(regression, "ngn", batch_size=5), LRS, 50, store=tmp_path / "search")


def test_what_is_no_store_is_left_alone(regression, tmp_path):
    (tmp_path / "thesis.txt").write_text("precious")
    for path, message in (
        ("thesis.txt", "not a surefoot store|not a database"),
        ("", "a store must be a file"),
        ("no/s", "does not exist"),
    ):
        with pytest.raises((StoreError, FileNotFoundError), match=message):
            tune(ProblemRun(regression, "sgd", batch_size=5), LRS, 50, store=tmp_path / path)
    assert (tmp_path / "thesis.txt").read_text() == "precious"


@pytest.mark.parametrize(
    "cut", [lambda data: data[:100], lambda data: data[100:], lambda data: b"", lambda data: b"hi"]
)
def test_a_damaged_run_is_named(regression, tmp_path, cut):
    runs = ProblemRun(regression, "sgd", batch_size=5)
    tune(runs, LRS, 50, store=tmp_path / "search")
    for path in tmp_path.glob("search.states/*.state"):
        path.write_bytes(cut(path.read_bytes()))
    with pytest.raises(SearchError, match=r"\.state is damaged.*; delete .*, and its run is computed anew"):
        tune(runs, LRS, 50, store=tmp_path / "search")


class TestStudies:
    def study(self, **changes):
        settings = {"methods": ["sgd", "sps"], "lrs": LRS, "epochs": 10, "batch_size": 5, "seeds": 2}
        return Study(LinearRegression(noise=0.5), **(settings | changes))

    def test_the_store_changes_nothing(self, tmp_path):
        with_store = tune(self.study(), store=tmp_path / "study.db")
        assert with_store.table == tune(self.study()).table

    def test_finished_runs_are_those_of_the_study(self, tmp_path):
        """What a search adds to the store is bit for bit what the study would have computed."""
        study = self.study()
        tune(study, store=tmp_path / "study.db")
        done = study.plan(tmp_path / "study.db").done
        assert 0 < done < len(study.runs)
        there = Result.load(tmp_path / "study.db").dataset
        fresh = study.run().dataset
        known = there.status != "missing"
        for name in there.data_vars:
            one, other = there[name].where(known, drop=False), fresh[name].where(known, drop=False)
            assert one.identical(other) or np.array_equal(one.values, other.values, equal_nan=True), name

    def test_a_complete_study_answers_without_a_step(self, tmp_path, monkeypatch):
        study = self.study()
        losses = study.run(tmp_path / "study.db").dataset.last_loss.mean("seed")
        monkeypatch.setattr(ProblemRun, "advance", lambda *_: pytest.fail("a step was taken"))
        found = tune(study, store=tmp_path / "study.db")
        assert found.loss == pytest.approx(float(losses.min()))
        assert found.run is None

    @pytest.mark.parametrize("name", ["lrs", "horizon", "seeds", "schedule"])
    def test_what_the_study_tells_cannot_be_given(self, name):
        with pytest.raises(TypeError, match=f"{name} is set by the study"):
            tune(self.study(), **{name: 1})

    def test_thinned_traces_are_refused(self):
        with pytest.raises(ValueError, match="every must be 1"):
            tune(self.study(every=2))


# What a store of a search is remembered by.

DECAY = 0.0


def decayed(parameters, lr):
    return torch.optim.SGD(parameters, lr=lr, weight_decay=DECAY)


def size_of(rows):
    return lambda seed: [(X[part], Y[part]) for part in torch.arange(40).split(rows)]


def weighted(scale):
    return lambda model, batch: scale * squared(model, batch)


PARTS = {
    "model_factory": lambda: nn.Linear(3, 1),
    "data_factory": size_of(8),
    "loss_fn": weighted(1.0),
    "optimizer_factory": decayed,
}


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    """The store of a search, which the same recipe gets again."""
    path = tmp_path_factory.mktemp("search") / "search"
    first = tune(TorchRun(**PARTS), [0.01, 0.1], 10, store=path)
    assert tune(TorchRun(**PARTS), [0.01, 0.1], 10, store=path).table == first.table
    return path


@pytest.mark.parametrize(
    "change",
    [
        {"loss_fn": weighted(2.0)},
        {"data_factory": size_of(4)},
        {"optimizer_factory": lambda parameters, lr: torch.optim.SGD(parameters, lr=lr, weight_decay=0.1)},
        {"optimizer_factory": torch.optim.Adam},
        {"model_factory": lambda: nn.Linear(3, 1, bias=False)},
        {"model_seed": 1},
        {"evaluate": lambda model: float(squared(model, (X, Y)))},
        {"version": "2"},
    ],
    ids=["loss", "batch size", "decay", "optimizer", "model", "model_seed",
         "evaluate", "version"],
)  # fmt: skip
def test_another_recipe_does_not_get_the_old_table(searched, change):
    with pytest.raises(ValueError, match="belongs to another search: methods differ in"):
        tune(TorchRun(**(PARTS | change)), [0.01, 0.1], 10, store=searched)


def test_a_global_that_a_factory_reads_counts_and_is_named(tmp_path, monkeypatch):
    runs = recipe(decayed)
    tune(recipe(decayed), [0.01, 0.1], 10, store=tmp_path / "search")
    monkeypatch.setitem(decayed.__globals__, "DECAY", 0.1)
    with pytest.raises(ValueError, match=r"methods differ in .*DECAY"):
        tune(recipe(decayed), [0.01, 0.1], 10, store=tmp_path / "search")
    assert runs.identity().parts


def test_what_cannot_be_identified_needs_a_version(tmp_path):
    (tmp_path / "scale").write_text("2")
    with (tmp_path / "scale").open() as file:

        def loss(model, batch):
            file.seek(0)
            return float(file.read()) * squared(model, batch)

        parts = (lambda: nn.Linear(3, 1), batches, loss, torch.optim.SGD)
        with pytest.raises(ValueError, match=r"file \(TextIOWrapper\) cannot be identified. Give version="):
            tune(TorchRun(*parts), [0.01, 0.1], 10, store=tmp_path / "search")
        tune(TorchRun(*parts, version="1"), [0.01, 0.1], 10, store=tmp_path / "search")


def test_a_search_says_how_it_is_given_a_version(tmp_path):
    table = np.frompyfunc(lambda x: x, 1, 1)

    def loss(model, batch):
        table(1.0)
        return squared(model, batch)

    runs = TorchRun(lambda: nn.Linear(3, 1), batches, loss, lambda p, lr: torch.optim.SGD(p, lr=lr))
    with pytest.raises(ValueError, match="Give version='1' to what makes the runs"):
        tune(runs, [0.1, 0.2], 10, store=tmp_path / "s")
    runs.version = "1"
    assert tune(runs, [0.1, 0.2], 10, store=tmp_path / "s").lr in (0.1, 0.2)


def test_a_study_removes_what_a_search_has_left_of_its_runs(tmp_path):
    study = Study("linear-regression", methods="sgd", lrs=[0.01, 0.1], seeds=1, epochs=2, batch_size=5)
    tune(study, store=tmp_path / "s.db", processes=1)
    assert list(tmp_path.glob("*.states/*.state"))
    study.run(tmp_path / "s.db")
    assert not list(tmp_path.glob("*.states"))


TWO = """
    import sys
    import torch
    from surefoot.search import TorchRun, tune

    X = torch.randn(256, 6, generator=torch.Generator().manual_seed(0))

    def batches(seed):
        return X[torch.randperm(256, generator=torch.Generator().manual_seed(seed))].split(16)

    def loss(model, batch):
        return (model(batch) - batch.sum(1, keepdim=True).sin()).square().mean()

    def make():
        return torch.nn.Sequential(torch.nn.Linear(6, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))

    runs = TorchRun(make, batches, loss, torch.optim.SGD, evaluate=lambda model: loss(model, X))
    print("ready", flush=True)
    sys.stdin.readline()
    found = tune(runs, [0.001, 0.01, 0.1], horizon=400, store=sys.argv[1])
    print(found.lr, found.loss, float(loss(found.run.model, X)))
"""


def test_of_two_processes_with_one_store_each_gets_the_trained_model(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(TWO))
    command = [sys.executable, str(path), str(tmp_path / "search")]
    both = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for process in both:
        assert process.stdout.readline() == "ready\n"
    for process in both:  # at once
        process.stdin.write("go\n")
        process.stdin.flush()
    answers = [process.communicate(timeout=120)[0].split() for process in both]
    assert answers[0] == answers[1]
    _, told, measured = answers[0]
    assert float(told) == pytest.approx(float(measured), rel=1e-5)
