"""The runs of a study that this process computes, where several share the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from surefoot.runs._archive import Key
from surefoot.runs._claims import Owner
from surefoot.runs._connection import StoreError, connect
from surefoot.runs._nouns import RunPlan
from surefoot.runs._store import Store


class ClaimedRuns:
    """Claims in a store; they end with this context, however it ends.

    Args:
        store: Where the runs go to, open for writing.
        context: Of the study.
        identities: Of its methods, by name.
    """

    def __init__(self, store: Store, context: str, identities: Mapping[str, str]) -> None:
        self._store, self._context, self._identities = store, context, identities
        self._owner = Owner(self._renew)

    def __enter__(self) -> Self:
        self._owner.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._owner.__exit__(kind, error, trace)
        with suppress(StoreError):  # a full disk: this owner is dead now, which ends its claims as well
            self._store.release(self._owner.name)

    def free(self, runs: Sequence[RunPlan]) -> list[RunPlan]:
        """Those that nobody else computes now."""
        keys = set(self._store.free(self._context, map(self._key, runs), self._owner.name))
        return [run for run in runs if self._key(run) in keys]

    def take(self, runs: Sequence[RunPlan]) -> bool:
        """Claim runs: all of them, or none if somebody else has one of them."""
        return self._store.claim(self._context, map(self._key, runs), self._owner.name)

    def missing(self, runs: Sequence[RunPlan]) -> list[RunPlan]:
        """Those that are not stored yet."""
        done = self._store.done(self._context)
        return [run for run in runs if self._key(run) not in done]

    def _key(self, run: RunPlan) -> Key:
        return Key(self._identities[run.method.name], run.lr, run.seed)

    def _renew(self, owner: str) -> None:
        """Called in another thread, which needs a connection of its own."""
        with Store(self._store.path, connect(self._store.path, "rw")) as opened:
            opened.renew(owner)
