"""The TOML spec."""

import numpy as np
import pytest

from surefoot.study import Study

SPEC = """
problem = "linear-regression"
methods = ["sgd", "sps(lower_bound=-2)"]
lrs = { from = 1e-2, to = 1e2, count = 5 }
seeds = 2
epochs = 3
batch_size = 5
"""


def write(tmp_path, text):
    path = tmp_path / "study.toml"
    path.write_text(text)
    return path


def test_a_spec_becomes_the_study_that_python_would_write(tmp_path):
    options = 'schedule = "warmup(steps=5)"\nsampling = "iid"\nlower_bound = -1\nevery = 2\ndistance = 3\n'
    table = "[problem_options]\nn = 20\nd = 3\nnoise = 1.0\ndata_seed = 4\n"
    study = Study.from_spec(write(tmp_path, SPEC.replace('"sgd"', '"ngn"') + options + table))
    same = Study(
        "linear-regression",
        methods=["ngn", "sps(lower_bound=-2)"],
        lrs=np.geomspace(1e-2, 1e2, 5),
        seeds=[0, 1],
        epochs=3,
        batch_size=5,
        schedule="warmup(steps=5)",
        sampling="iid",
        lower_bound=-1,
        every=2,
        distance=3.0,
        problem_options={"n": 20, "d": 3, "noise": 1.0, "data_seed": 4},
    )
    assert study._settings() == same._settings()
    assert study._context() == same._context()


def test_defaults_are_those_of_the_study(tmp_path):
    path = write(tmp_path, SPEC.replace("seeds = 2\n", ""))
    same = Study("linear-regression", methods=Study.from_spec(path).methods, lrs=[1, 2], epochs=3, batch_size=5)
    settings, expected = Study.from_spec(path)._settings(), same._settings()
    assert {**settings, "lrs": None} == {**expected, "lrs": None}


def test_rates_between_two_ends_are_even_in_log(tmp_path):
    assert Study.from_spec(write(tmp_path, SPEC)).lrs == pytest.approx([0.01, 0.1, 1.0, 10.0, 100.0], rel=1e-14)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("seeds = 2", "seed = 2", "got 'seed'; did you mean 'seeds'"),
        ("seeds = 2", "noise = 2", "goes under [problem_options]"),
        ("epochs = 3\n", "", "the key 'epochs' is missing"),
        ("epochs = 3", "epochs = 0", "epochs must be a whole number of at least 1, got 0"),
        ("batch_size = 5", "batch_size = true", "batch_size must be a whole number of at least 1, got True"),
        ("from = 1e-2", "from = 0", "lrs.from must be above 0, got 0"),
        ("from = 1e-2", "form = 1e-2", "got 'form'; did you mean 'from'"),
        (", count = 5", "", "lrs must have the keys from, to and count"),
        ("count = 5", "count = 0", "lrs.count must be a whole number of at least 1, got 0"),
        ("from = 1e-2", "from = 1e3", "lrs.from must be below lrs.to, got 1000.0 and 100.0"),
        ('methods = ["sgd", ', 'methods = ["sgd", "sgd", ', "methods must be distinct, got 'sgd' twice"),
        ('"sgd"', '"sdg"', "got 'sdg'; did you mean 'sgd'"),
        ('"sgd"', "3", "methods must be names, models or Method objects, got 3"),
        ("problem = ", "problem == ", "not a TOML file"),
        ("seeds = 2", "schedule = 3", "schedule must be a name or 30 factors, one per step"),
    ],
)
def test_an_error_names_the_file_the_key_and_what_is_allowed(tmp_path, old, new, message):
    assert old in SPEC
    path = write(tmp_path, SPEC.replace(old, new))
    with pytest.raises((ValueError, TypeError)) as caught:
        Study.from_spec(path)
    assert str(path) in str(caught.value)
    assert message in str(caught.value)


def test_a_file_of_a_windows_editor_is_the_same(tmp_path):
    path = tmp_path / "windows.toml"
    path.write_bytes(b"\xef\xbb\xbf" + SPEC.replace("\n", "\r\n").encode())
    assert Study.from_spec(path)._settings() == Study.from_spec(write(tmp_path, SPEC))._settings()


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"study\.toml"):
        Study.from_spec(tmp_path / "study.toml")
