"""A study: methods × learning rates × seeds on one problem."""

from __future__ import annotations

import json
import os
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from numpy.typing import ArrayLike

from surefoot._base import checks
from surefoot._identity import Identity, require
from surefoot.problems import Problem, create
from surefoot.rules import PartialBound, StopRule, check_rules
from surefoot.runs import (
    Executor,
    Key,
    Method,
    Record,
    RunError,
    Settings,
    States,
    Store,
    StoreError,
    Tell,
    Trace,
    is_network,
    parse_methods,
    reporter,
    work_of,
)
from surefoot.study._result import Result
from surefoot.study._spec import read_spec
from surefoot.study._stored import Seen, context_of, seen, settings_of, tell_reuse
from surefoot.theory import schedules
from surefoot.theory.models import Linear, Model, Truncated


class StudyInterrupted(KeyboardInterrupt):
    """Ctrl-C during a study; the message says what is kept and how to go on."""


class LowerBoundWarning(UserWarning):
    """Losses were below the lower bound C of a method, which took no step there."""


class Plan(NamedTuple):
    """How much of a study there is to do, in runs."""

    total: int
    done: int
    todo: int


class Study:
    """A sweep of methods × learning rates × seeds on one problem.

    All runs start at the same point; a seed sets the order of the data and nothing else. Each run takes
    T = epochs·⌊n/batch_size⌋ steps.

    Args:
        problem: A name (``"linear-regression"``, ``"logistic-regression"``, …), ``"module:factory"``, or a problem.
        methods: Names (``"sgd"``, ``"sps(lower_bound=-2)"``, ``"power(p=0.25)"``, ``"spp"``, …) or models of
            :mod:`surefoot.theory.models` or of your own.
        lrs: Learning rates α, or ``{"from": 1e-2, "to": 1e2, "count": 9}``, evenly in log.
        epochs: Passes over the data.
        batch_size: Rows of one step, at most those of the problem.
        seeds: How many (then 0, 1, …), or a list of them.
        schedule: A name (``"constant"``, ``"warmup(steps=50)"``, …), or T positive factors.
        sampling: ``"shuffle"`` (each epoch in a new order, the incomplete last batch dropped), or ``"iid"``, which is
            what the theorems need.
        lower_bound: C of the methods that are given by a name without one of their own.
        every: Keep every k-th step of the traces.
        distance: D of the bound, for later; any other can be asked for.
        stop: Rules of :mod:`surefoot.monitor` that end runs early: their numbers are ∞ from then on, and their status
            is ``stopped``.
        version: A word of yours for what cannot be identified, such as a file that your code reads: runs are used again
            only under the same word. Needed where a store would have to guess.
        data: Name of the data set, for problems that have one; the same as ``problem_options={"data": …}``.
        problem_options: What the named problem takes.

    >>> study = Study("linear-regression", methods=["sgd", "sps"], lrs=[0.01, 0.1], seeds=2, epochs=2, batch_size=5)
    >>> study.plan()
    Plan(total=8, done=0, todo=8)
    >>> result = study.run()
    >>> dict(result.dataset.sizes)
    {'algorithm': 2, 'lr': 2, 'seed': 2, 'step': 20, 'epoch': 3}
    """

    def __init__(
        self,
        problem: str | Problem,
        *,
        methods: str | Model | Method | Iterable[str | Model | Method],
        lrs: float | Iterable[float] | Mapping[str, float],
        epochs: int,
        batch_size: int,
        seeds: int | Sequence[int] = 3,
        schedule: str | ArrayLike = "constant",
        sampling: str = "shuffle",
        lower_bound: float | None = None,
        every: int = 1,
        distance: float | None = None,
        stop: StopRule | Sequence[StopRule] = (),
        version: str | None = None,
        data: str | None = None,
        problem_options: Mapping[str, Any] | None = None,
    ) -> None:
        if version is not None and (not isinstance(version, str) or not version):
            raise ValueError(f"version must be a word of yours, as in version='2', got {version!r}")
        self.version = version
        self._left: Seen | None = None
        """How code, values and data looked when the last runs had ended."""
        if lower_bound is not None:
            lower_bound = checks.number("lower_bound", lower_bound)
        self.methods = parse_methods(methods, lower_bound=lower_bound)
        self.lrs = checks.rates(lrs)
        self.seeds = checks.seeds(seeds)
        self.epochs = checks.whole("epochs", epochs, 1)
        self.batch_size = checks.whole("batch_size", batch_size, 1)
        self.sampling = checks.sampling(sampling)
        self.distance = None if distance is None else checks.number("distance", distance, positive=True)
        if problem_options is not None and not isinstance(problem_options, Mapping):
            raise TypeError(f"problem_options must be a table of options by name, got {problem_options!r}")
        self.problem = _problem(problem, data, dict(problem_options or {}))
        if self.batch_size > self.problem.n_rows:
            raise ValueError(
                f"batch_size must be at most the {self.problem.n_rows} training rows of {self.problem.name!r}, "
                f"got {self.batch_size}"
            )
        for method in self.methods:
            if method.is_exact and not self.problem.has_prox:
                raise ValueError(f"methods must not hold 'spp' on {self.problem.name!r}, a problem without prox")
            if method.optimizer is not None and not is_network(self.problem):
                raise ValueError(f"methods must not hold {method.name!r} on {self.problem.name!r}: it is for networks")
        self.steps_per_epoch = self.problem.n_rows // self.batch_size
        self.every = checks.whole("every", every, 1)
        self._check_length()
        self.stop = check_rules(stop, self.every)
        self.schedule, self.factors = schedules.factors(schedule, self.steps)
        if any(isinstance(rule, PartialBound) for rule in self.stop):
            self._check_bound()

    @classmethod
    def from_spec(cls, path: str | os.PathLike[str]) -> Study:
        """The study that a TOML file describes, by the names of the arguments; errors name the file.

        .. code-block:: toml

            problem = "logistic-regression"        # or "module:factory" of yours
            data = "vowel"
            methods = ["sgd", "sps", "ngn", "sps(lower_bound=-2)"]
            lrs = { from = 1e-2, to = 1e2, count = 9 }   # evenly in log; or a list
            seeds = 3                              # 0, 1, 2; or a list
            epochs = 20
            batch_size = 16
            schedule = "constant"                  # or "warmup(steps=50)", …, or one factor per step
            sampling = "shuffle"                   # or "iid"
            lower_bound = 0.0                      # C of the methods that are given without one
            every = 1                              # keep every k-th step
            distance = 100.0                       # D of the bound
            version = "1"                          # a word of yours for what cannot be identified

            [problem_options]                      # whatever the problem takes: n, d, noise, ridge, start, …
            ridge = 1e-3

        A spec with ``"module:factory"`` is code: it imports that module and calls that function.
        """
        arguments = read_spec(path, cls)
        try:
            return cls(**arguments)
        except (ValueError, TypeError) as error:
            if type(error) not in (ValueError, TypeError):
                raise  # whoever has an error class of their own names the file that matters
            raise type(error)(f"{path}: {error}") from error

    @classmethod
    def problem_in(cls, path: str | os.PathLike[str]) -> str:
        """The problem that a spec names, which is not made: its module may be code that should be announced before."""
        return str(read_spec(path, cls)["problem"])

    def _check_length(self) -> None:
        """Refuse runs whose numbers would fill the memory, and those of which none are kept."""
        if self.steps > checks.MOST_STEPS:
            raise ValueError(
                f"epochs must be at most {checks.MOST_STEPS // self.steps_per_epoch}, which are {checks.MOST_STEPS} "
                f"steps, got {self.epochs}"
            )
        if self.every > self.steps:
            raise ValueError(f"every must be at most the {self.steps} steps of a run, got {self.every}")
        least = -(-self.steps // checks.MOST_KEPT)
        if self.every < least:
            raise ValueError(
                f"every must be at least {least} for runs of {self.steps} steps, of which {checks.MOST_KEPT} can be "
                f"kept, got {self.every}"
            )

    def _check_bound(self) -> None:
        """Refuse a partial bound as a stop rule where it proves nothing."""
        if is_network(self.problem):
            raise ValueError(f"stop must not hold PartialBound on {self.problem.name!r}: its proof needs a convex loss")
        for method in self.methods:
            if not (method.is_exact or (method.level is None and type(method.model) in (Linear, Truncated))):
                raise ValueError(f"methods must be 'sgd', 'sps' or 'spp' with PartialBound, got {method.name!r}")

    @property
    def steps(self) -> int:
        """T, the steps of one run."""
        return self.steps_per_epoch * self.epochs

    @property
    def shared(self) -> Settings:
        """What all runs of the study share."""
        return Settings(
            self.steps_per_epoch,
            self.epochs,
            self.batch_size,
            self.factors,
            self.sampling,
            self.every,
            self.stop,
            self.distance,
        )

    @property
    def runs(self) -> list[Key]:
        """All runs of the study, each by the name of its method, rate and seed."""
        return [Key(method.name, lr, seed) for method in self.methods for lr in self.lrs for seed in self.seeds]

    def plan(self, store: str | os.PathLike[str] | None = None) -> Plan:
        """How many runs there are, how many of them the store holds, and how many are left."""
        done: set[Key] = set()
        if store is not None and Path(store).exists():
            self._look_anew()
            with Store.read(store) as opened:
                done = opened.done(self._context())
        left = len(self._missing(done))
        return Plan(len(self.runs), len(self.runs) - left, left)

    def identity(self) -> Identity:
        """What tells whether stored runs are those of this study: code, values, packages. ``print`` it."""
        self._look_anew()
        return self._seen.identity

    def run(
        self,
        store: str | os.PathLike[str] | None = None,
        *,
        states: str | os.PathLike[str] | None = None,
        progress: Tell = False,
        processes: int | None = None,
        engine: str = "auto",
        address: str | None = None,
        cpus: int | None = None,
        gpus: int | None = None,
    ) -> Result:
        """Compute the runs that are missing, and return all of them.

        Args:
            store: A file that keeps every finished run, is created if it does not exist, and can hold any number of
                studies. Runs that are in it already are not computed again: after an interruption, run the same study
                with the same store. Without a store all stays in memory: 48 bytes per step that is kept.
            states: The folder of unfinished runs of networks, ``STORE.states`` by default. Workers on other machines
                must see it to go on with runs whose worker was lost; the store itself belongs on a local disk.
            progress: Show a bar with rate and time left; or call back with the runs done, and with those to do.
            processes: Worker processes, by default as many as pay off.
            engine: ``"auto"`` takes this process and others of this machine; ``"dask"`` a Dask cluster (needs the extra
                ``surefoot[dask]``), with the same result.
            address: Of the scheduler of an existing Dask cluster; without one, a cluster is started on this machine.
            cpus: Of what Dask workers offer as ``CPU``, how much a run takes; on this machine, cores a worker.
            gpus: Of what Dask workers offer as ``GPU``, how much a run takes.

        Raises:
            StudyInterrupted: Ctrl-C (a ``KeyboardInterrupt``).
            StoreError: The file is foreign, damaged or read-only, or the disk is full.
            CheckpointError: What a run of a network goes on from is damaged, of another run, or cannot be written.
            ClusterError: The Dask cluster cannot be used, or was lost; finished runs are kept.
            RunFailed: A run raised; finished runs are kept. Or a worker process died twice over a run (out of memory?):
                all others are done then, and are the error's ``result``.
        """
        executor = Executor(engine, processes, address, cpus, gpus)
        path = None if store is None else Path(store)
        if path is not None and self._is_complete(path, progress):
            return self._result(path)
        failure: RunError | None = None
        below: Counter[str] = Counter()
        done = 0
        with self._opened(path, states) as (opened, files), executor:
            context = self._context()
            missing = self._missing(opened.done(context))
            if path is not None:
                tell_reuse(self, opened, len(self.runs) - len(missing), progress)
            records = [Record(key, self.steps) for key in missing]
            if begun := opened.unfinished(context):
                records.sort(key=lambda record: files.path(record.key) not in begun)  # begun ones first
            work = work_of(self.problem, self.methods, self.shared, files)

            def keep(traces: list[Trace]) -> None:
                nonlocal done
                opened.add(context, [trace._replace(key=files.stored(trace.key)) for trace in traces])
                done += len(traces)
                for trace in traces:
                    if files.lasts:
                        files.remove(trace.key)
                    below[trace.key.method] += trace.violations
                report(done)

            try:
                with reporter(progress, total=len(missing)) as report:
                    executor.advance(work, records, self.steps, keep)
            except KeyboardInterrupt:
                advice = f"finished runs are kept: run the same study with the store {opened.name!r} to resume"
                if path is None:
                    advice = "nothing was stored: give run() a store to be able to resume"
                done = len(missing) - len(self._missing(opened.done(context)))  # also what was just being counted
                raise StudyInterrupted(f"interrupted after {done} of {len(missing)} runs; {advice}") from None
            except RunError as error:
                failure = error
            finally:
                if path is not None and not is_network(self.problem):
                    self._left = seen(self)
            if opened.unfinished(context):  # a search leaves runs there that it has taken to their end
                stored = replace(files, identities=None)
                for key in opened.done(context):
                    stored.remove(key)
        for name, count in (+below).items():
            warnings.warn(
                f"{name}: the loss was below the lower bound at {count} steps; no step was taken there. Give the "
                "method a smaller lower_bound",
                LowerBoundWarning,
                stacklevel=2,
            )
        result = self._result(opened if path is None else path)
        if failure is not None:
            failure.result = result
            raise failure
        return result

    def _result(self, store: Path | Store) -> Result:
        where = store.absolute() if isinstance(store, Path) else store
        result = Result(self._settings(), where, self._context(), problem=self.problem)
        if isinstance(store, Path):
            with suppress(StoreError):  # a folder that cannot be written: the study is complete there
                result.optimum()  # so that the file tells all without the problem
        return result

    def _is_complete(self, path: Path, progress: Tell) -> bool:
        """Whether a store holds this study with all its runs, which then is the last one started, if it is writable."""
        if not path.exists():
            return False
        self._look_anew()
        require(self._seen.identity, self.version, f"store {str(path)!r}")
        with Store.read(path) as store:
            entries, settings = store.studies(), json.loads(json.dumps(self._settings()))
            if self._missing(store.done(self._context())) or settings not in [entry.settings for entry in entries]:
                return False
            tell_reuse(self, store, len(self.runs), progress)
        if entries[-1].settings != settings:
            with suppress(StoreError), Store.write(path) as store:
                store.register(self._context(), self._settings())
        return True

    @contextmanager
    def _opened(
        self, path: Path | None, states: str | os.PathLike[str] | None = None
    ) -> Iterator[tuple[Store, States]]:
        """Where the runs are kept while they are computed: in a store, which then knows this study, or in memory."""
        identities = self._seen.identities
        if path is None:
            with TemporaryDirectory(prefix="surefoot-") as folder:
                yield Store.write(), States(folder, identities=identities)
            return
        self._look_anew()
        require(self._seen.identity, self.version, f"store {str(path)!r}")
        with Store.write(path, states=states) as store, store.locked(self._context()):
            store.register(self._context(), self._settings())
            yield store, States(str(store.states), self._context(), self._seen.identities)

    def _missing(self, done: set[Key]) -> list[Key]:
        """The runs that are not among those that the store holds, under the identities of their methods."""
        names = self._seen.identities
        return [run for run in self.runs if run._replace(method=names[run.method]) not in done] if done else self.runs

    def _look_anew(self) -> None:
        """Look at code, values and data again, which you may have changed since; what runs have changed is not new.

        A network is looked at once: its model has to be made for that.
        """
        if not is_network(self.problem) and (now := seen(self)) != self._left:
            self._seen = now

    @cached_property
    def _seen(self) -> Seen:
        return seen(self)

    _context = context_of
    _settings = settings_of


def _problem(problem: str | Problem, data: str | None, options: dict[str, Any]) -> Problem:
    if data is not None:
        if "data" in options:
            raise ValueError(f"data is given twice, as {data!r} and in problem_options as {options['data']!r}")
        options["data"] = data
    if isinstance(problem, str):
        return create(problem, **options)
    if not isinstance(problem, Problem):
        raise TypeError(f"problem must be a name, 'module:factory' or a Problem, got {problem!r}")
    if options:
        raise ValueError(f"problem_options are for problems by name, got {options!r} beside a Problem")
    return problem
