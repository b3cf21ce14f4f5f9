"""What a user sees who prints an object, shows it in a notebook, or asks the package for its names."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import surefoot as sf
import surefoot.optim as sfo
from surefoot.study import Method
from surefoot.theory import models


@pytest.fixture(scope="module")
def result():
    study = sf.Study(
        "linear-regression", methods=["sgd", "sps"], lrs=[0.01, 0.1, 1e4], seeds=2, epochs=20, batch_size=5
    )
    return study.run()


def test_printed_result_tells_where_each_method_holds(result):
    head, titles, sgd, sps = str(result).splitlines()
    assert head == "linear-regression: 2 methods × 3 rates × 2 data orders, 200 steps"
    assert titles.split()[:3] == ["method", "holds", "best"]
    row = result.sensitivity()["sgd"]
    assert f"{row.low:.3g} – {row.high:.3g}" in sgd
    assert sgd.endswith("2 of 6")
    assert sps.endswith("0 of 6")


def test_result_without_a_run_is_printed():
    study = sf.Study("linear-regression", methods=["sgd"], lrs=[0.01], seeds=1, epochs=1, batch_size=5)
    result = study.run()
    empty = sf.Result(result.settings, result._store, "another")
    assert str(empty).endswith("no run is finished yet")


def test_notebook_shows_a_table_without_markup_of_others():
    hostile = Method("<img src=x onerror=alert(1)>", models.Linear())
    study = sf.Study("linear-regression", methods=[hostile], lrs=[0.01], seeds=1, epochs=1, batch_size=5)
    shown = study.run()._repr_html_()
    assert shown.count("<tr>") == 2
    assert "<img" not in shown
    assert "&lt;img" in shown


def test_sensitivity_is_a_table(result):
    assert len(str(result.sensitivity()).splitlines()) == 3
    assert result.sensitivity()._repr_html_().count("<tr>") == 3


def test_last_step_is_readable():
    x = torch.nn.Parameter(torch.tensor([3.0]))
    opt = sfo.NGN([x], lr=1.0)
    loss = (x**2).sum() / 2
    loss.backward()
    opt.step(loss=loss)
    assert str(opt.last_step) == "step size 0.5, stability index δ 2.25"


@pytest.mark.parametrize(
    ("size", "shown"),
    [(0.1, "0.1"), (np.array([0.1, 0.25]), "[0.1, 0.25]"), (np.linspace(0, 1, 9), "0 to 1 (shape (9,))")],
)
def test_steps_of_arrays_are_short(size, shown):
    assert str(models.Step(size, 1.0)) == f"step size {shown}, stability index δ 1"


def test_step_inside_a_compiler_can_be_printed():
    jax = pytest.importorskip("jax")
    seen = []
    jax.jit(lambda x: seen.append(str(models.SquareRoot().step(x, x, 0.1))) or x)(1.0)
    assert "step size" in seen[0]


def test_names_of_the_package_are_the_public_ones():
    assert {"Study", "Result", "tune", "forecast", "StabilityMonitor", "optim", "theory"} <= set(dir(sf))
    assert not {"Any", "TYPE_CHECKING", "annotations", "importlib", "pkgutil"} & set(dir(sf))
    assert [name for name in dir(sf) if name.startswith("_")] == ["__version__"]


def test_every_name_of_the_package_is_there():
    for name in dir(sf):
        if name != "__version__":
            assert sf.__getattr__(name) is getattr(sf, name)
