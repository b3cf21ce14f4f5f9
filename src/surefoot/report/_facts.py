"""What the page tells about a problem and only the problem itself knows: the envelope, σ² and ε_lb."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from surefoot.problems import constants

if TYPE_CHECKING:
    from surefoot.study import Result

NAME = "constants"
"""Under which σ² and ε_lb are kept with the runs."""

_ABSENT = "not computed: the problem was not at hand when this page was written"


def prepare(result: Result) -> None:
    """Compute what a page needs of the problem (envelope, σ², ε_lb), and keep it with the runs.

    Call it while the problem is at hand, that is on what ``Study.run`` returns; a page that is later written from the
    study's file alone then shows it. What a problem does not know is left out.

    >>> from surefoot.study import Study
    >>> study = Study("linear-regression", methods=["sps"], lrs=[0.1, 1.0], seeds=1, epochs=1, batch_size=5)
    >>> result = study.run()
    >>> prepare(result)
    >>> sorted(result.facts())
    ['constants', 'envelope', 'optimum']
    """
    result.optimum()
    envelope(result)
    known_constants(result)


def envelope(result: Result) -> tuple[list[float] | None, str]:
    """The envelope bias of every rate, or None and the reason."""
    try:
        return result.envelope().values.tolist(), ""
    except NotImplementedError as error:
        return None, str(error)
    except ValueError:  # a result from a file, where nobody has asked for it in time
        return None, _ABSENT


def known_constants(result: Result) -> tuple[list[dict[str, Any]], str]:
    """σ² and ε_lb for every lower bound C that a method of the study uses (0 if none has one), or the reason."""
    batch_size = result.settings["batch_size"]
    given = {method["lower_bound"] for method in result.settings["methods"]} - {None}
    kept: list[dict[str, Any]] = result.facts().get(NAME, [])
    found = []
    for bound in sorted(given) or [0.0]:
        key = {"batch_size": batch_size, "lower_bound": bound}
        entry = next((entry for entry in kept if key.items() <= entry.items()), None)
        if entry is None:
            problem = result.problem
            if problem is None:  # a result that was loaded from a file
                return [], _ABSENT
            try:
                entry = {**key, **asdict(constants(problem, batch_size, lower_bound=bound))}
            except (ValueError, NotImplementedError) as error:
                return [], str(error)
            kept = [*kept, entry]
            result.remember(NAME, kept)
        found.append(entry)
    return found, ""
