"""Which edits of user code a store sees, and which it does not care about."""

import importlib
import logging
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.identity_cases import CODE, HELPERS

from surefoot._identity import IdentityError
from surefoot.problems import ArrayProblem, DatasetInputs, NetworkProblem
from surefoot.study import Method, Study

ROOT = Path(__file__).parents[2]
X = torch.randn(16, 6, generator=torch.Generator().manual_seed(0))
DATA = X, torch.arange(16) % 3


def study_of(code, **options):
    problem = NetworkProblem(code.make, DATA, code.loss)
    methods = ["sgd", Method("mine", optimizer=code.optimizer)]
    return Study(problem, methods=methods, lrs=[0.1], seeds=1, epochs=1, batch_size=8, **options)


def key_of(study):
    """What runs are remembered under."""
    return study._context(), tuple(study._seen.identities.values())


@contextmanager
def modules_in(folder):
    """Gives what imports the user's two modules anew, after an edit of one of them."""

    def run(file=None, old=None, new=None):
        sources = {"code": CODE, "helpers": HELPERS}
        if file is not None:
            assert old in sources[file], old
            sources[file] = sources[file].replace(old, new)
        (folder / "helpers.py").write_text(sources["helpers"])
        (folder / "mycode.py").write_text(sources["code"])
        for name in ("helpers", "mycode"):
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        return importlib.import_module("mycode")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "dont_write_bytecode", True)
        patch.syspath_prepend(str(folder))
        yield run
    for name in ("helpers", "mycode"):
        sys.modules.pop(name, None)


@pytest.fixture
def load(tmp_path):
    with modules_in(tmp_path) as run:
        yield run


def test_the_code_of_the_table_runs_and_its_runs_are_found_again(load, tmp_path):
    first = study_of(load()).run(tmp_path / "s.db", processes=1)
    assert np.isfinite(first.dataset.last_loss).all()
    assert study_of(load()).plan(tmp_path / "s.db").todo == 0
    assert study_of(load("helpers", "SCALE = 2.0", "SCALE = 2.5")).plan(tmp_path / "s.db").todo == 2
    assert study_of(load("code", "momentum=0.5", "momentum=0.6")).plan(tmp_path / "s.db").todo == 1  # of two methods


def test_every_process_finds_the_same_identity(load, tmp_path):
    """Whatever PYTHONHASHSEED is: sets have another order in each."""
    load()
    program = (
        f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(ROOT)!r}]\n"
        "import mycode; from tests.study.test_stored import key_of, study_of; print(key_of(study_of(mycode)))"
    )
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "77"
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    found = subprocess.check_output([sys.executable, "-c", program], text=True, env=environment)
    assert found == f"{key_of(study_of(load()))}\n"


def test_a_private_attribute_of_a_problem_of_yours_is_seen():
    class Median(ArrayProblem):
        name, features = "median", 1

        def __init__(self, values, secret):
            self.values, self.n_rows, self._secret = np.asarray(values), len(values), secret

        def describe(self):
            return {}

        def evaluate(self, points, rows):
            gap = points - self.values[rows] * self._secret
            return abs(gap).mean(axis=1), np.sign(gap).mean(axis=1, keepdims=True)

    prints = {Median(values, secret).fingerprint() for values in ([1.0, 2.0], [1.0, 3.0]) for secret in (1.0, 2.0)}
    assert len(prints) == 4
    assert Median([1.0, 2.0], 1.0).fingerprint() in prints


class Reader:
    """Reads from what cannot be identified."""

    def __init__(self, path):
        self.file = open(path, "rb")  # noqa: SIM115

    def __call__(self, outputs, targets):
        self.file.seek(0)
        return torch.nn.functional.cross_entropy(outputs, targets) * len(self.file.read())


def test_what_cannot_be_identified_is_refused_by_name_unless_there_is_a_version(tmp_path):
    (tmp_path / "weights").write_bytes(b"abc")
    reader = Reader(tmp_path / "weights")

    def study(**options):
        problem = NetworkProblem(lambda: torch.nn.Linear(6, 3), DATA, reader)
        return Study(problem, methods=["sgd"], lrs=[0.1], seeds=1, epochs=1, batch_size=8, **options)

    with pytest.raises(IdentityError, match=r"file \(BufferedReader\) cannot be identified. Give version='1'"):
        study().run(tmp_path / "s.db", processes=1)
    assert not (tmp_path / "s.db").exists()
    study().run()  # nothing is stored, so nothing can be mixed up
    study(version="1").run(tmp_path / "s.db", processes=1)
    assert study(version="1").plan(tmp_path / "s.db").todo == 0
    assert study(version="2").plan(tmp_path / "s.db").todo == 1
    reader.file.close()


@pytest.mark.parametrize("version", ["", 3])
def test_a_version_is_a_word(version):
    with pytest.raises(ValueError, match="version must be a word of yours"):
        Study("linear-regression", methods=["sgd"], lrs=[0.1], epochs=1, batch_size=5, version=version)


def test_on_reuse_a_line_says_what_the_match_rests_on(load, tmp_path, caplog):
    study_of(load()).run(tmp_path / "s.db", processes=1)
    with caplog.at_level(logging.INFO, "surefoot"):
        study_of(load(), version=None).run(tmp_path / "s.db", processes=1)
    assert "2 runs are in" in caplog.text
    for part in ("the match rests on", "values of mycode", "torch 2"):
        assert part in caplog.text


def test_where_nothing_is_reused_a_line_names_what_has_changed(load, tmp_path, caplog):
    study_of(load()).run(tmp_path / "s.db", processes=1)
    with caplog.at_level(logging.INFO, "surefoot"):
        study_of(load("helpers", "SCALE = 2.0", "SCALE = 2.5")).run(tmp_path / "s.db", processes=1)
    assert "that is not used: helpers.SCALE differs" in caplog.text


# Data sets.


class Rows(torch.utils.data.Dataset):
    def __init__(self, read, count=200, scale=1.0):
        self.read, self.count, self.scale = read, count, scale

    def __len__(self):
        return self.count

    def __getitem__(self, row):
        return torch.full((6,), self.scale * read_row(self.read, row)), row % 3


def read_row(name, row):
    """As from a file: nothing that the data set holds tells what it reads."""
    return _files(name).get(row, 0.0)


def _files(name):
    import json

    return {int(key): value for key, value in json.loads(Path(name).read_text()).items()}


def test_of_a_data_set_code_and_values_and_some_items_count(tmp_path):
    file = tmp_path / "rows.json"
    file.write_text("{}")
    before = DatasetInputs(Rows(str(file))).fingerprint()
    assert DatasetInputs(Rows(str(file))).fingerprint() == before
    assert DatasetInputs(Rows(str(file), scale=2.0)).fingerprint() != before
    file.write_text('{"0": 5.0}')  # the first item is among those that are read
    assert DatasetInputs(Rows(str(file))).fingerprint() != before


def test_an_item_that_is_not_sampled_may_change_unseen(tmp_path):
    file = tmp_path / "rows.json"
    file.write_text("{}")
    sampled = DatasetInputs(Rows(str(file)))
    assert str(sampled.identity()).count("64 of the 200 items of Rows") == 1
    file.write_text('{"1": 5.0}')
    assert DatasetInputs(Rows(str(file))).fingerprint() == sampled.fingerprint()  # as the line on reuse says
