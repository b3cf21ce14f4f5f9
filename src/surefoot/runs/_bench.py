"""Runs in one process: taken up, advanced by a piece, and put aside."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from surefoot._states import load_state, save_state
from surefoot.runs._run import Floats, Run, RunError, RunFactory
from surefoot.runs._threads import one_thread
from surefoot.runs._types import Key
from surefoot.runs._workers import Stop, Stopped

if TYPE_CHECKING:
    from surefoot.runs._lane import Lane


class Piece(NamedTuple):
    """Some steps of a run."""

    key: Key
    begin: int
    """Steps that it has taken before."""
    steps: int
    state: str | None = None
    """A file to go on from, where the run is not at hand."""
    keep: str | None = None
    """Where its state is to be written afterwards, without the suffix; None leaves it in memory."""


class Advanced(NamedTuple):
    """What came of a piece."""

    losses: Floats
    deltas: Floats
    """At least 0."""
    lost: bool
    """Whether the last step was not finite; the run has ended then."""
    negative: int | None
    """Place of the first index that was negative, as with momentum: it counts as 0, and proves nothing."""
    certifies: bool
    distance: float | None
    evaluation: float | None
    trace: Any
    """What a study keeps of a run that has come to its end."""
    state: str | None
    """The file with its state, if that was wanted and it goes on."""


class DamagedState(RuntimeError):
    """A file that a run should go on from is not what was written: (path, reason)."""


class Bench:
    """The runs of some factories; a few are at hand, the others wait on disk.

    Args:
        factories: By method.
        horizon: T.
        max_states: Runs at hand; the one that was used longest ago is put aside.
    """

    def __init__(self, factories: Mapping[str, RunFactory], horizon: int, max_states: int) -> None:
        self._factories, self._horizon, self.max_states = factories, horizon, max_states
        self._live: OrderedDict[Key, tuple[Run, int, bool]] = OrderedDict()
        """Each run, the steps it has taken, and whether its state is on disk."""
        self._aside: dict[Key, str] = {}
        self._folder: Path | None = None

    @property
    def needs_torch(self) -> bool:
        """Whether runs depend on torch; one that does not, but imports it, is none the worse for it."""
        return "torch" in sys.modules

    def fingerprint(self) -> str:
        """What the factories tell of themselves."""
        told = [getattr(factory, "fingerprint", str)() for factory in self._factories.values()]
        return " ".join(map(str, told))

    def copy(self, count: int) -> Bench:
        """One without runs for each of some processes."""
        return Bench(self._factories, self._horizon, max(1, self.max_states // count))

    def close(self) -> None:
        """Forget what was put aside."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def folder(self) -> Path:
        """Where runs wait."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="surefoot-search-"))
        return self._folder

    def stem(self, lane: Lane, step: int) -> Path:
        """Where the state of a run after some steps is to be written, without the suffix."""
        return state_stem(lane.key.stem(self.folder), step)

    def do(self, pieces: Sequence[Piece], stop: Stop | None = None) -> list[Advanced]:
        """Advance runs of one method, which are as many steps long: in one go where the factory can do that."""
        if stop is not None and stop():
            raise Stopped
        try:
            with nullcontext() if self._keeps_threads(pieces[0]) else one_thread():
                runs = [self.take(piece.key, piece.begin, piece.state) for piece in pieces]
                together = getattr(self._factories[pieces[0].key.method], "advance_together", None)
                if together is not None and len(pieces) > 1:
                    with _named(pieces[0], " and runs beside it"):
                        found = list(together(runs, pieces[0].steps))
                else:
                    found = []
                    for piece, run in zip(pieces, runs, strict=True):
                        with _named(piece):
                            found.append(run.advance(piece.steps))
                return [self._read(*told) for told in zip(pieces, runs, found, strict=True)]
        except BaseException:
            for piece in pieces:  # nobody knows where they are
                self._live.pop(piece.key, None)
            raise

    def _keeps_threads(self, piece: Piece) -> bool:
        return bool(getattr(self._factories[piece.key.method], "keeps_threads", False))

    def take(self, key: Key, begin: int, state: str | None) -> Run:
        """A run after ``begin`` steps, from memory, from disk, or new; ``LookupError`` if it left no state."""
        run, at, _ = self._live.get(key, (None, -1, False))
        if run is None or at != begin:
            with _named(Piece(key, begin, 0)):
                run = self._factories[key.method](key.lr, key.seed)
            if not isinstance(run, Run):
                raise TypeError(
                    "run_factory(lr, seed) must return a surefoot.search.Run, with advance(k), state_dict() and "
                    f"load_state_dict(state), got {run!r}"
                )
            path = self._aside.pop(key, None) or state
            if begin:
                if path is None:
                    raise LookupError(f"{key} has no state")
                try:
                    run.load_state_dict(_loaded(path))
                except FileNotFoundError:  # another process, which has finished this run, has removed it
                    with _named(Piece(key, 0, begin)):
                        run.advance(begin)
            self._live[key] = run, begin, path is not None and path == state
            if path is not None and path != state:
                Path(path).unlink()
        self._live.move_to_end(key)
        while len(self._live) > self.max_states:
            self._put_aside(next(iter(self._live)))
        return run

    def hand_over(self, key: Key) -> str | None:
        """Put a run on disk, for somebody else to take up, and say where it is; None if it was not here alone."""
        if key in self._live:
            self._put_aside(key)
        return self._aside.pop(key, None)

    def _put_aside(self, key: Key) -> None:
        run, at, on_disk = self._live.pop(key)
        if at and not on_disk:
            self._aside[key] = str(save_state(state_stem(key.stem(self.folder), at), run.state_dict()))

    def _read(self, piece: Piece, run: Run, progress: Any) -> Advanced:
        """What a run has told about a piece, checked, and what it tells now."""
        key, k = piece.key, piece.steps
        losses, deltas = _arrays(progress, k)
        if losses is None or deltas is None:
            raise RunError(
                f"{key}: advance({k}) must return two sequences of {k} numbers, the losses and the stability indices, "
                f"got {progress!r}"
            )
        bad = ~(np.isfinite(losses) & np.isfinite(deltas))
        lost = bool(bad.any())
        if lost:
            losses, deltas = (values[: int(bad.argmax()) + 1] for values in (losses, deltas))
        elif len(losses) < k:
            raise RunError(f"{key}: advance({k}) returned {len(losses)} steps, all of them finite")
        below = np.flatnonzero(~(deltas >= 0))
        end = piece.begin + len(losses)
        ended = lost or end == self._horizon
        distance = evaluation = trace = state = None
        with _named(piece):
            if not lost:
                distance = run.distance()
                evaluation = run.evaluate() if ended else None
            trace = run.trace() if ended else None
            certifies = bool(run.certifies)
        if lost:
            self._live.pop(key, None)
        else:
            if piece.keep is not None:
                Path(piece.keep).parent.mkdir(parents=True, exist_ok=True)  # of another machine, maybe
                state = str(save_state(Path(piece.keep), run.state_dict()))
            if key in self._live:
                self._live[key] = run, end, state is not None
        return Advanced(
            losses,
            np.maximum(deltas, 0.0),
            lost,
            int(below[0]) if len(below) else None,
            certifies,
            None if distance is None else float(distance),
            None if evaluation is None else float(evaluation) if np.isfinite(float(evaluation)) else np.inf,
            trace,
            state,
        )


def state_stem(stem: Path, step: int) -> Path:
    """Where the state of a run after some steps goes, without the suffix of its format."""
    return stem.with_name(f"{stem.name}-{step}")


def _loaded(path: str) -> Any:
    try:
        return load_state(Path(path))
    except FileNotFoundError:
        raise
    except Exception as error:  # torch raises many kinds for a file that is none of its own
        raise DamagedState(path, str(error)) from error


def _arrays(progress: Any, k: int) -> tuple[Floats, Floats] | tuple[None, None]:
    try:
        losses, deltas = (np.array(values, float) for values in progress)
    except (TypeError, ValueError):
        return None, None
    if losses.ndim != 1 or losses.shape != deltas.shape or not 1 <= len(losses) <= k:
        return None, None
    return losses, deltas


@contextmanager
def _named(piece: Piece, more: str = "") -> Iterator[None]:
    """Says which run an error comes from."""
    try:
        yield
    except RunError:
        raise
    except Exception as error:
        where = f"{piece.key}, after {piece.begin} steps{more}"
        raise RunError(f"the run at {where} raised {type(error).__name__}: {error}") from error
