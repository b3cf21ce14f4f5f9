"""Names that the shell completes: figures, claims, statements, data sets and problems."""

from __future__ import annotations

from collections.abc import Iterable


def figures(incomplete: str) -> list[str]:
    """Names of figures and of groups of them."""
    from surefoot.paper.figures import FIGURES, GROUPS, LAST

    return _matching([*FIGURES, *GROUPS, *(f"figure{number}" for number in range(1, LAST + 1))], incomplete)


def claims(incomplete: str) -> list[str]:
    """Ids of claims."""
    from surefoot.paper.claims import all_claims

    return _matching(all_claims(), incomplete)


def statements(incomplete: str) -> list[str]:
    """Names of statements that semidefinite programs verify."""
    from surefoot.pep import NAMES

    return _matching(NAMES, incomplete)


def datasets(incomplete: str) -> list[str]:
    """Names of data sets, here or not."""
    from surefoot.data import available

    return _matching([info.name for info in available()], incomplete)


def problems(incomplete: str) -> list[str]:
    """Names of problems that ``surefoot init`` knows."""
    from surefoot.cli._init import STARTS

    return _matching(STARTS, incomplete)


def objectives(incomplete: str) -> list[str]:
    """What ``surefoot tune`` can minimise."""
    return _matching(["loss", "bound"], incomplete)


def engines(incomplete: str) -> list[str]:
    """Who can do the runs of a study."""
    return _matching(["auto", "dask"], incomplete)


def presets(incomplete: str) -> list[str]:
    """Sizes of network studies."""
    from surefoot.paper.presets import PRESETS

    return _matching(PRESETS, incomplete)


def _matching(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
