"""Progress is reported in one way: to a function, or as a bar on standard error."""

from __future__ import annotations

import pytest

from surefoot._base.progress import reporter


def test_a_function_gets_what_is_new_and_the_total():
    seen = []
    with reporter(lambda *state: seen.append(state), total=3) as report:
        for done in (1, 1, 3):
            report(done)
    assert seen == [(1, 3), (3, 3)]


@pytest.mark.parametrize(("total", "shown"), [(None, "7/?"), (9, "7/9")])
def test_a_bar_says_what_it_is_about_and_the_total_once_it_is_known(capsys, total, shown):
    with reporter(True, about="runs of mine") as report:
        report(7, total=total)
    out, err = capsys.readouterr()
    assert out == ""
    assert "runs of mine" in err
    assert shown in err


@pytest.mark.parametrize("progress", [False, None])
def test_without_progress_nothing_is_shown(capsys, progress):
    with reporter(progress, total=1) as report:
        report(1)
    assert capsys.readouterr() == ("", "")
