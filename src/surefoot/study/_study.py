"""A study: methods × learning rates × seeds on one problem."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import ArrayLike

from surefoot._base import checks
from surefoot._identity import Identity, require
from surefoot.problems import Problem, create
from surefoot.rules import StopRule, check_rules, is_shared, with_best
from surefoot.runs import (
    Keeper,
    Key,
    Method,
    Place,
    RunFiles,
    RunPlan,
    Settings,
    Store,
    StoreKeeper,
    Tell,
    Trace,
    Work,
    best_of,
    cut,
    forget_best,
    is_network,
    parse_methods,
    torch_ranks,
    work_of,
)
from surefoot.study._archive import FileArchive, MemoryArchive
from surefoot.study._result import Result
from surefoot.study._stored import Seen, adopt, check_size, context_of, seen, settings_of, tell_reuse
from surefoot.study._sweep import compute, dismiss, follow
from surefoot.theory import schedules
from surefoot.theory.models import Model


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
        self.stop = check_rules(stop, may_share=True)
        if self.distance is None and self._shares:
            raise ValueError("distance must be given, D of the bound, for stop rules with best='shared', got None")
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
        self.schedule, self.factors = schedules.factors(schedule, self.steps)
        if self.every > self.steps:
            raise ValueError(f"every must be at most the {self.steps} steps of a run, got {self.every}")

    @classmethod
    def from_spec(cls, path: str | os.PathLike[str]) -> Study:
        """The study that a TOML file describes; :class:`~surefoot.study.Spec` says what it may hold."""
        from surefoot.study._spec import Spec

        spec = Spec.from_toml(path)
        try:
            return cls(**vars(spec))
        except (ValueError, TypeError) as error:
            if type(error) not in (ValueError, TypeError):
                raise  # whoever has an error class of their own names the file that matters
            raise type(error)(f"{path}: {error}") from error

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
    def runs(self) -> list[RunPlan]:
        """All runs of the study."""
        return [RunPlan(method, lr, seed) for method in self.methods for lr in self.lrs for seed in self.seeds]

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

    def adopt(self, store: str | os.PathLike[str], *, study: int | None = None) -> int:
        """Take over runs that a file holds under another identity, because you know that their numbers are the same.

        That is so for runs of surefoot 0.1, which remembered them by a weaker rule, and after changes of code or
        versions that change no number. Settings must be the same; methods are matched by their names.

        Args:
            store: The file.
            study: Position of the study in it, in the order in which they were last started; by default the last one
                with these settings.

        Returns:
            How many runs were taken over: the next ``run`` does not compute them.
        """
        self._look_anew()
        return adopt(self, store, study)

    def run(
        self,
        store: str | os.PathLike[str] | None = None,
        *,
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
                with the same store. Without a store all stays in memory.
            progress: Show a bar with rate and time left; or call back with the runs done, and with those to do if the
                function takes two arguments.
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
            RunFailed: A run raised; finished runs are kept.
        """
        place, count = Place(engine, processes, address, cpus, gpus), self._ranks()
        if count > 1:
            if engine != "auto" or self.batch_size < count:
                raise ValueError(
                    f"{count} ranks of torch.distributed need engine='auto' and a batch_size of at least {count}, "
                    f"got engine={engine!r} and batch_size={self.batch_size}"
                )
            place = Place(processes=1)
            if torch_ranks.number() > 0:
                settings, traces = follow(self._work(RunFiles(""), self.shared))
                return Result(settings, MemoryArchive(traces), problem=self.problem)
        try:
            result = self._run(None if store is None else Path(store), place, progress)
        finally:
            if store is not None and not is_network(self.problem):
                self._left = seen(self)
        if count > 1:
            dismiss(result.settings, result._archive.traces())
        return result

    def _run(self, path: Path | None, place: Place, progress: Tell) -> Result:
        """Compute the runs that are missing where they are kept, and settle what they share."""
        study = self
        with self._keeping(path) as keeper:
            settings, missing = self._sharing(Path(keeper.files.folder)), self._missing(keeper.done())
            if isinstance(keeper, StoreKeeper):
                tell_reuse(self, keeper.store, len(self.runs) - len(missing), progress)
            compute(self._work(keeper.files, settings), settings, missing, keeper, place, progress)
            traces = keeper.traces() if path is None or self._shares else ()
            if self._shares:
                study, traces = self._settled(traces)
            if isinstance(keeper, StoreKeeper) and self._shares:
                keeper.store.register(study._context(), study._settings())
                keeper.store.add(study._context(), traces)
            if Path(keeper.files.folder).is_dir():  # a search leaves runs there that it has taken to their end
                for run in self.runs:
                    keeper.files.remove(run.key)
        if path is None:
            return Result(study._settings(), MemoryArchive(list(traces)), problem=self.problem)
        forget_best(settings)
        with suppress(OSError):  # it is not there, or another study has begun runs in it
            Store.folder_of(path).rmdir()
        archive = FileArchive(path.absolute(), study._context(), self._seen.fingerprint)
        result = Result(study._settings(), archive, problem=self.problem)
        result.optimum()  # so that the file tells all without the problem
        return result

    @contextmanager
    def _keeping(self, path: Path | None, factories: Mapping[str, Any] | None = None) -> Iterator[Keeper]:
        """Keep the runs while they are computed: in a store, which then knows this study, or in memory.

        Args:
            path: The store.
            factories: What makes the runs of each method; a search gives it, to read what runs have told on their way.
        """
        if path is None:
            with Keeper(self._seen.identities) as keeper:
                yield keeper
            return
        self._look_anew()
        require(self._seen.identity, self.version, f"store {str(path)!r}")
        with StoreKeeper(path, self._context(), self._seen.identities, factories) as keeper:
            check_size(self, keeper.store)
            keeper.store.register(self._context(), self._settings())
            yield keeper

    def _work(self, files: RunFiles, settings: Settings) -> Work:
        """What takes the runs to their end; with a store they are saved on their way."""
        return work_of(self.problem, self.methods, settings, files, shares=self._ranks() > 1)

    def _sharing(self, folder: Path) -> Settings:
        """What all runs share, with a file in which they tell each other the best bound."""
        if not self._shares or self._ranks() > 1:  # ranks have to end a run at the same step
            return self.shared
        return replace(self.shared, best=str(folder / f"{self._context()[:20]}.best"))

    @property
    def _shares(self) -> bool:
        """Whether runs are ended by the bounds of others."""
        return any(is_shared(rule) for rule in self.stop)

    def _settled(self, traces: Iterable[Trace]) -> tuple[Study, list[Trace]]:
        """This study with the smallest bound of all its runs in place of a shared one, and the runs cut by that."""
        runs = {self._key(run): run for run in self.runs}
        ours = [trace for trace in traces if trace.key in runs]
        study, best = copy.copy(self), best_of(ours, self.shared)
        study.stop = with_best(self.stop, best)
        return study, [cut(trace, runs[trace.key], self.shared, best, self.problem.n_valid > 0) for trace in ours]

    def _ranks(self) -> int:
        """How many processes train a network together."""
        return torch_ranks.count() if is_network(self.problem) else 1

    def _key(self, run: RunPlan) -> Key:
        """The key that a run is kept under."""
        return Key(self._seen.identities[run.method.name], run.lr, run.seed)

    def _missing(self, done: set[Key]) -> list[RunPlan]:
        return [run for run in self.runs if self._key(run) not in done] if done else self.runs

    def _look_anew(self) -> None:
        """Look at code, values and data again, which you may have changed since; what runs have changed is not new.

        A network is looked at once: its model has to be made for that.
        """
        if not is_network(self.problem) and (now := seen(self)) != self._left:
            self._seen = now

    @cached_property
    def _seen(self) -> Seen:
        return seen(self)

    def _context(self) -> str:
        """Hash of all that the runs of this study share and that their numbers depend on."""
        return context_of(self)

    def _settings(self) -> dict[str, Any]:
        """All that a result needs when the problem is not at hand, JSON-able."""
        return settings_of(self)


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
