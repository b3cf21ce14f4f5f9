"""The paper's convex studies: settings, and numbers in kind."""

from __future__ import annotations

import numpy as np
import pytest

from surefoot.paper import experiments, figures
from surefoot.paper.figures import convex


@pytest.mark.parametrize(
    ("name", "steps", "runs"),
    [
        ("linear-regression", 100, 400),
        ("v1", 100, 400),
        ("v2", 100, 400),
        ("v3", 100, 320),
        ("vowel", 520, 135),
        ("dna", 1000, 135),
    ],
)
def test_settings_are_the_papers(name, steps, runs):
    study = experiments.study(name)
    assert study.steps == steps
    assert study.plan().total == runs


def test_unknown_experiment_is_named():
    with pytest.raises(ValueError, match=r"experiment must be .*, got 'vowels'; did you mean 'vowel'"):
        experiments.study("vowels")


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("studies")
    columns = figures.load("linear-regression").columns(folder)
    assert (folder / "linear-regression.db").exists()
    return columns


def values(columns, kind, method):
    return columns["value"][(columns["kind"] == kind) & (columns["method"] == method)]


def test_regression_is_in_kind_what_the_paper_shows(base):
    sgd, sps, spp = (values(base, "loss", name) for name in ("sgd", "sps", "spp"))
    assert sgd[6] < 1e-4  # α = 0.1
    assert (sgd[7:] > 1e6).all()  # from α = 0.215 on
    assert (sps[7:] < 1e-5).all()
    assert (spp[9:] < 1e-12).all()


def test_bound_is_above_the_loss_where_both_are_finite(base):
    for method in ("sgd", "sps", "spp", "ngn"):
        loss, bound = values(base, "loss", method), values(base, "bound", method)
        finite = np.isfinite(bound)
        assert (loss[finite] <= bound[finite]).all()
        assert (values(base, "bound-safe", method) >= bound * (1 - 1e-9)).all()


def test_divergence_is_infinite_never_nan(base):
    assert not np.isnan(base["value"]).any()
    assert np.isinf(values(base, "loss", "sgd")[-1])


def test_figure_is_drawn_from_the_table(base, tmp_path):
    written = figures.save("linear-regression", base, tmp_path)
    assert [path.suffix for path in written] == [".png", ".pdf", ".csv"]


def test_a_level_repairs_v3(monkeypatch):
    figure = figures.load("level")
    monkeypatch.setattr(convex, "PANELS", {name: convex.PANELS[name] for name in ("linear-regression", "v1")})
    columns = figure.columns()

    def at(problem, method, lr):
        here = (columns["problem"] == problem) & (columns["method"] == method) & np.isclose(columns["lr"], lr)
        (loss,) = columns["loss"][here]
        return loss

    for name in ("sps", "ngn"):
        for lr in (1.0, 10.0, 100.0):
            level, wrong = (at("linear-regression", f"{name}(lower_bound={c})", lr) for c in ("level", "-2"))
            # With the wrong bound the iterates jump about: where they end differs from processor to processor.
            assert level < 1e-3 < 0.5 * columns["initial_loss"][0] < wrong
            assert at("v1", f"{name}(lower_bound=level)", lr) < at("v1", name, lr)
            assert at("linear-regression", name, lr) < level  # the exact bound is better still
    assert [ax.get_title() for ax in figure.draw(columns).axes] == list(convex.PANELS.values())


def test_larger_batches_lower_sigma_and_help_spp(monkeypatch):
    figure = figures.load("interpolation")
    monkeypatch.setattr(convex, "BATCH_SIZES", (1, 50))
    columns = figure.columns()
    once = columns["method"] == "spp"
    sigma, decades = columns["sigma_sq"][once], columns["decades"][once]
    assert sigma[-1] == pytest.approx(0.0, abs=1e-9)
    assert sigma[0] > 0.3
    assert decades[-1] > decades[0] + 1
    assert len(figure.draw(columns).axes) == 2
