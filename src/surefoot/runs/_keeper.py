"""Where the runs of a study or a search are kept: who computes them, which are finished, and where the others wait."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

import numpy as np

from surefoot.runs._claims import owner
from surefoot.runs._connection import StoreError, connect
from surefoot.runs._lane import Lane, Told
from surefoot.runs._run_files import RunFiles
from surefoot.runs._store import Store
from surefoot.runs._types import Key, Trace


class Keeper:
    """Keeps finished runs in memory, and the others in a folder that is removed at the end of the context.

    They are this process's alone. :class:`StoreKeeper` keeps them for good.

    Args:
        identities: What the methods are kept under, by name; without them it is the names.
    """

    advice = "nothing was stored: give run() a store to be able to resume"
    """What to do after an interruption."""

    def __init__(self, identities: Mapping[str, str] | None = None) -> None:
        self.files = RunFiles("", identities=identities)
        self._finished: dict[Key, Trace] = {}
        self._open = ExitStack()

    def __enter__(self) -> Self:
        folder = self._open.enter_context(tempfile.TemporaryDirectory(prefix="surefoot-"))
        self.files = RunFiles(folder, identities=self.files.identities)
        return self

    def __exit__(self, *error: Any) -> None:
        self._open.__exit__(*error)

    def claim(self, lanes: Sequence[Lane]) -> bool:
        """Claim runs and bring their lanes up to date; False if somebody else has one of them, or has finished it."""
        return True

    def release(self, lanes: Iterable[Lane]) -> None:
        """Let others have runs."""

    def restore(self, lanes: Iterable[Lane]) -> None:
        """Fill lanes with what is kept of their runs."""

    def done(self) -> set[Key]:
        """The keys, as they are kept, of the runs that are finished."""
        return set(self._finished)

    def finish(self, traces: Iterable[Trace]) -> None:
        """Keep finished runs; copies, because their arrays may be small parts of large ones."""
        for trace in traces:
            key, rows = self.files.stored(trace.key), np.array(list(trace.steps.values()))
            steps = dict(zip(trace.steps, rows, strict=True))
            epochs = {name: row.copy() for name, row in trace.epochs.items()}
            self._finished.setdefault(key, trace._replace(key=key, steps=steps, epochs=epochs))

    def traces(self) -> Iterable[Trace]:
        """The finished runs."""
        return self._finished.values()


class StoreKeeper(Keeper):
    """Keeps runs in a store. A process has runs for itself while it computes them, and lets them go when it does not.

    Args:
        path: The file.
        context: Hash of what the runs share.
        identities: What the methods are stored under, by name.
        factories: Of a search, by method, which asks what runs have told. None for a study, which asks for no more than
            whether a run is finished.
    """

    def __init__(
        self, path: Path, context: str, identities: Mapping[str, str], factories: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(identities)
        self.path, self.context, self._factories = path, context, factories
        self.files = RunFiles(str(Store.folder_of(path)), context, dict(identities))
        self.advice = f"finished runs are kept: run the same study with the store {str(path)!r} to resume"
        self._owner = ""

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            self.store = opened.enter_context(Store.write(self.path))
            opened.callback(self._release_all)
            self._owner = opened.enter_context(owner(self._renew))
            self.files.sweep()
            self._open = opened.pop_all()
        return self

    def claim(self, lanes: Sequence[Lane]) -> bool:
        """Claim runs and bring their lanes up to date; False if somebody else has one of them, or has finished it."""
        if not self.store.claim(self.context, map(self._key, lanes), self._owner):
            return False
        for lane in lanes:
            self._take_up(lane)
        return True

    def release(self, lanes: Iterable[Lane]) -> None:
        """Let others have runs."""
        self.store.unclaim(self.context, map(self._key, lanes), self._owner)

    def restore(self, lanes: Iterable[Lane]) -> None:
        """Fill lanes with what is kept of their runs."""
        done = self.done()
        for lane in lanes:
            self._take_up(lane)  # it tells more than a result
            if not lane.ended and self._key(lane) in done:
                self._take_result(lane)

    def done(self) -> set[Key]:
        """The keys, as they are kept, of the runs that are finished."""
        return self.store.done(self.context)

    def finish(self, traces: Iterable[Trace]) -> None:
        """Commit finished runs."""
        self.store.add(self.context, [trace._replace(key=self.files.stored(trace.key)) for trace in traces])

    def traces(self) -> Iterable[Trace]:
        """The finished runs, those of other studies of the same problem and settings among them."""
        return self.store.traces(self.context)

    def _take_up(self, lane: Lane) -> None:
        """Take over what a search's run had told when it was put aside, if that is news."""
        told = None if self._factories is None else self.files.told(lane.key)
        if told is not None and told.begin + len(told.losses) > lane.recorded:
            lane.take(told)

    def _take_result(self, lane: Lane) -> None:
        """Take over a finished run: all that a search asks of it."""
        if self._factories is None:
            lane.ended = True
            return
        trace = next(self.store.traces(self.context, self._key(lane)))
        lost = trace.diverged_at if trace.diverged_at >= 0 else None
        end = lane.horizon if lost is None else lost + 1
        proves = bool(getattr(self._factories[lane.key.method], "certifies", True))
        marks = () if lost is not None else ((end, float(trace.steps["distance"][-1])),)
        last = None if lost is not None else trace.final["last_loss"]
        deltas = np.maximum(trace.steps["delta"][:end], 0.0)
        lane.take(Told(0, trace.steps["loss"][:end], deltas, lost, None, proves, marks, last))

    def _key(self, lane: Lane) -> Key:
        return self.files.stored(lane.key)

    def _renew(self, name: str) -> None:
        """Renew the claims from another thread, which needs a connection of its own."""
        with Store(self.path, connect(self.path, "rw")) as store:
            store.renew(name)

    def _release_all(self) -> None:
        """End all claims: their owner has ended, too."""
        with suppress(StoreError):  # a full disk: a dead owner has no claims
            self.store.release(self._owner)
