"""Problems by name."""

from __future__ import annotations

import importlib
import inspect
import operator
from collections.abc import Callable
from typing import Any

from surefoot._base.arguments import unknown
from surefoot.problems._linear_regression import LinearRegression
from surefoot.problems._logistic import LogisticRegression
from surefoot.problems._named_networks import characters, digits_cnn, digits_mlp, resnet20
from surefoot.problems._network import NetworkProblem
from surefoot.problems._problem import Problem
from surefoot.problems.toy import ToyFunction

PROBLEMS: dict[str, Callable[..., Problem]] = {
    **{cls.name: cls for cls in (LinearRegression, LogisticRegression, ToyFunction)},
    **{function.__name__.replace("_", "-"): function for function in (resnet20, digits_mlp, digits_cnn, characters)},
}
"""The problems that have a name."""


def create(name: str, **options: Any) -> Problem:
    """The problem of a name, or of ``"module:factory"``, where ``factory(**options)`` returns it.

    >>> create("linear-regression", n=20, d=4).n_rows
    20
    """
    if not isinstance(name, str):
        raise TypeError(f"problem must be a name, got {name!r}")
    factory = _imported(name) if ":" in name else PROBLEMS.get(name.lower().replace("_", "-"))
    if factory is None:
        raise unknown("problem", name, list(PROBLEMS))
    _check_options(name, factory, options)
    try:
        problem = factory(**options)
    except (ValueError, TypeError, OSError, ImportError):
        raise  # their messages are for the reader
    except Exception as error:
        raise RuntimeError(f"problem {name!r} raised {type(error).__name__}: {error}") from error
    if not isinstance(problem, Problem):
        raise TypeError(f"problem {name!r} must give a surefoot.problems.Problem, got {type(problem)}")
    return problem


def _imported(name: str) -> Callable[..., Problem]:
    module, _, attribute = name.partition(":")
    try:
        factory: Any = operator.attrgetter(attribute)(importlib.import_module(module))
    except Exception as error:  # a module of the user's may raise anything
        expected = isinstance(error, ImportError | AttributeError | ValueError)
        reason = error if expected else f"{type(error).__name__}: {error}"
        raise ValueError(f"problem {name!r} must be 'module:factory', which can be imported: {reason}") from error
    if not callable(factory):
        raise TypeError(f"problem {name!r} must name something to call, got {factory!r}")
    return factory  # type: ignore[no-any-return]


def _check_options(name: str, factory: Callable[..., Problem], options: dict[str, Any]) -> None:
    """Name what is wrong with the options before the factory is called."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except ValueError:  # a builtin that does not tell
        return
    allowed = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    if takes_any and factory in PROBLEMS.values():  # which hand them on to NetworkProblem
        handed_on = inspect.signature(NetworkProblem).parameters.values()
        allowed += [p.name for p in handed_on if p.kind is p.KEYWORD_ONLY and p.name != "validation"]
        takes_any = False
    if not takes_any:
        for key in options:
            if key not in allowed:
                raise unknown(f"option of problem {name!r}", key, allowed)
    missing = [p.name for p in parameters if p.default is p.empty and p.name in allowed and p.name not in options]
    if missing:
        raise ValueError(f"problem {name!r} needs the option {missing[0]!r}")
