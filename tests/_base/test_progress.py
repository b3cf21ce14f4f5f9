"""Progress is told in one way: to a function of one or two arguments, or as a bar on standard error."""

from __future__ import annotations

import pytest

from surefoot._base.progress import reporter


def test_a_function_is_told_what_is_new_and_of_how_much():
    told = []
    with reporter(lambda *state: told.append(state), total=3) as tell:
        for done in (1, 1, 3):
            tell(done)
    assert told == [(1, 3), (3, 3)]


def test_a_function_of_one_argument_is_told_what_is_done():
    told = []
    with reporter(lambda done: told.append(done), total=3) as tell:
        tell(2, 0.5)
    assert told == [2]


@pytest.mark.parametrize(("total", "shown"), [(None, "7 "), (9, "7/9")])
def test_a_bar_says_what_it_is_about_and_the_total_once_it_is_known(capsys, total, shown):
    with reporter(True, about="runs of mine") as tell:
        tell(7, total=total)
    out, err = capsys.readouterr()
    assert out == ""
    assert "runs of mine" in err
    assert shown in err


@pytest.mark.parametrize("progress", [False, None])
def test_nobody_is_told_if_nobody_asks(capsys, progress):
    with reporter(progress, total=1) as tell:
        tell(1)
    assert capsys.readouterr() == ("", "")
