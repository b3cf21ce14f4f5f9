import dataclasses

import numpy as np
import pytest

from surefoot.paper import figures
from surefoot.pep import CACHE_VARIABLE, STATEMENTS

pytest.importorskip("PEPit", reason="needs the extra surefoot[pep]")


@pytest.fixture(scope="module")
def no_cache():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(CACHE_VARIABLE, "off")
        yield


@pytest.fixture(scope="module")
def indices(no_cache):
    """Every sixth case."""
    with pytest.MonkeyPatch.context() as patch:
        statement = STATEMENTS["spp"]
        patch.setitem(STATEMENTS, "spp", dataclasses.replace(statement, cases=statement.cases[::6]))
        return figures.load("pep").columns()


@pytest.fixture(scope="module")
def runs(no_cache):
    return figures.load("pep-bounds").columns()


def test_program_and_formula_agree(indices):
    np.testing.assert_allclose(indices["worst"], indices["exact"], rtol=1e-6)


def test_index_lies_below_both_bounds(indices):
    assert (indices["worst"] <= np.minimum(indices["delta_sgd"], indices["gap"]) * (1 + 1e-6)).all()


def test_table_of_indices_is_tidy(indices):
    assert {name: values.shape for name, values in indices.items()} == dict.fromkeys(indices, (13,))


def test_index_figure_has_a_panel_for_each_constant(indices):
    assert [axes.get_title() for axes in figures.load("pep").draw(indices).axes] == [
        f"gradients up to G = {G}" for G in ("0.5", "1", "2")
    ]


@pytest.mark.slow
def test_worst_cases_of_runs_lie_below_their_bounds(runs):
    assert (runs["ratio"] >= 1 - 1e-6).all()


@pytest.mark.slow
def test_average_bound_is_exact_from_the_usual_rate_on(runs):
    large = runs["lr"] * np.sqrt(runs["steps"]) > 0.999
    rows = large & (runs["iterate"] == "average-iterate") & (runs["schedule"] == "constant")
    np.testing.assert_allclose(runs["ratio"][rows], 1.0, rtol=1e-6)


@pytest.mark.slow
def test_runs_figure_has_three_panels(runs):
    assert len(figures.load("pep-bounds").draw(runs).axes) == 3
