"""An identity: a hash, what it rests on, and what it could not see."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from surefoot._identity._walk import Walk

_NAMED = 6
"""How many parts a message names before it only counts them."""


class IdentityError(ValueError):
    """Numbers would be stored under code that cannot be told apart from other code."""


@dataclass(frozen=True)
class Identity:
    """What the numbers of some code depend on."""

    digest: str
    """A short hash of all of it."""
    parts: Mapping[str, str] = field(default_factory=dict)
    """A hash of each function, class attribute and global of the user's by itself, by name: tells what has changed."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """Versions of the packages that the code uses."""
    unknown: tuple[str, ...] = ()
    """What could not be identified, by name."""
    notes: tuple[str, ...] = ()
    """What counts only in part, as a data set of which some rows were read."""

    def __str__(self) -> str:
        """What a match rests on, in one line."""
        modules = Counter(name.partition(".")[0] for name in self.parts)
        basis = [f"{count} functions and values of {module}" for module, count in sorted(modules.items())]
        basis += self.notes
        basis += [f"{name} {version}" for name, version in sorted(self.packages.items())]
        if self.unknown:
            basis.append(f"your word for {_listed(self.unknown)}")
        return ", ".join(basis) if basis else "the settings"

    def changes(self, parts: Mapping[str, str], packages: Mapping[str, str]) -> list[str]:
        """The names of what differs from another identity's parts and packages."""
        names = [name for name in {**self.parts, **parts} if self.parts.get(name) != parts.get(name)]
        return names + [
            f"{name} {packages.get(name, 'not used')} → {self.packages.get(name, 'not used')}"
            for name in sorted({*self.packages, *packages})
            if self.packages.get(name) != packages.get(name)
        ]


def identify(*values: Any) -> Identity:
    """The identity of functions, classes, modules, arrays, and whatever they hold or refer to.

    >>> identify({"b", "a"}).digest == identify({"a", "b"}).digest
    True
    >>> identify(open).unknown, identify(x for x in "ab").unknown
    ((), ('the generator',))
    """
    walk = Walk()
    try:
        hashed = walk.all_of(values)
    except RecursionError:
        raise IdentityError(
            f"{walk.where()} is nested too deeply to be identified; give it a method fingerprint()"
        ) from None
    return Identity(hashed.hex(), dict(sorted(walk.parts.items())), walk.packages(), tuple(walk.unknown))


def digest(*values: Any) -> str:
    """The hash of :func:`identify`.

    >>> digest([1, 2]) == digest([1, 2]), digest([1, 2]) == digest([2, 1])
    (True, False)
    """
    return identify(*values).digest


def merged(identities: Iterable[Identity]) -> Identity:
    """One identity of several, in their order."""
    several = list(identities)
    return Identity(
        digest(*(identity.digest for identity in several)),
        {name: part for identity in several for name, part in identity.parts.items()},
        {name: version for identity in several for name, version in identity.packages.items()},
        tuple(dict.fromkeys(name for identity in several for name in identity.unknown)),
        tuple(dict.fromkeys(note for identity in several for note in identity.notes)),
    )


def require(identity: Identity, version: str | None, where: str, how: str = "Give version='1'") -> None:
    """Refuse to store under an identity with gaps, unless the user has given a version for them.

    Args:
        identity: What is known about the code.
        version: The user's word for what is not known.
        where: What would store.
        how: How the user gives a version there.
    """
    if identity.unknown and version is None:
        raise IdentityError(
            f"{where} cannot tell whether it holds runs of this code: {_listed(identity.unknown)} cannot be "
            f"identified. {how}, and another one whenever that changes; or give the object a method fingerprint()"
        )


def _listed(names: tuple[str, ...]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
