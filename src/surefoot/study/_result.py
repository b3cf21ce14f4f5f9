"""What a study found: labelled traces, the bound over them, and how sensitive each method is to its rate."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from surefoot._base import checks
from surefoot._base.arguments import one_of
from surefoot.problems import one_blas_thread
from surefoot.runs import EXACT, FINAL_FIELDS, Floats, Store, StoreError, has_level
from surefoot.theory import bounds, schedules
from surefoot.theory.models import safe_delta

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr
    from matplotlib.axes import Axes

    from surefoot.problems import Problem
    from surefoot.study._sensitivity import SensitivityTable


_DIMS: dict[str, tuple[str, ...]] = {"runs": (), "steps": ("step",), "epochs": ("epoch",)}


class KnownOptimum(NamedTuple):
    """What is known about the minimum of the full training loss."""

    value: float | None
    """f⋆, the infimum; None if the problem does not tell."""
    exists: bool
    """Whether a minimiser x⋆ exists (not on separable data)."""
    distance: float | None
    """‖x_1 − x⋆‖ if it exists."""
    reason: str
    """Why there is no minimiser."""


class Result:
    """The runs of a study. Comes from ``Study.run``, or from its file with :meth:`load`.

    >>> from surefoot.study import Study
    >>> study = Study("linear-regression", methods=["sgd", "sps"], lrs=[0.01, 10.0], seeds=2, epochs=2, batch_size=5)
    >>> result = study.run()
    >>> result.dataset.status.sel(algorithm="sps").values.tolist()
    [['finished', 'finished'], ['finished', 'finished']]
    >>> result.bound(distance=1.0).total.dims
    ('algorithm', 'lr')
    """

    def __init__(
        self, settings: dict[str, Any], store: Path | Store, context: str, *, problem: Problem | None = None
    ) -> None:
        self.settings = settings
        """The study's settings: problem, methods, rates, versions, … (JSON-able)."""
        self._store, self._context = store, context
        self.problem = problem
        """What was minimised; None if the result was loaded from a file."""

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, study: int | None = None) -> Result:
        """The result of a study from its file alone: by default of the one that was started last.

        A study that was interrupted loads too; its missing runs have the status ``missing``.

        Args:
            path: The store.
            study: Position of the study in the file, in the order in which they were last started.
        """
        with Store.read(path) as store:
            entries = store.studies()
        if not entries:
            raise StoreError(f"{path}: the file holds no study")
        if study is not None and not -len(entries) <= study < len(entries):
            raise ValueError(f"study must be a position below {len(entries)}, the studies in {path}, got {study}")
        entry = entries[-1 if study is None else study]
        settings = {**entry.settings, "created": entry.created}
        return cls(settings, Path(path).absolute(), entry.context)

    @contextmanager
    def _opened(self, opened: Callable[[Path], AbstractContextManager[Store]]) -> Iterator[Store]:
        """The store: a file, which is opened only while something is read or written, or one in memory."""
        if isinstance(self._store, Store):
            yield self._store
        else:
            with opened(self._store) as store:
                yield store

    @property
    def algorithms(self) -> list[str]:
        """Names of the methods."""
        return [method["name"] for method in self.settings["methods"]]

    @property
    def lrs(self) -> Floats:
        """The learning rates, rising."""
        return np.array(self.settings["lrs"])

    @property
    def steps(self) -> int:
        """T, the steps of one run."""
        return int(self.settings["epochs"] * self.settings["steps_per_epoch"])

    @property
    def is_network(self) -> bool:
        """Whether the problem is a :class:`~surefoot.problems.NetworkProblem`."""
        return bool({"model", "model_seed", "device"} <= self.settings["problem"]["description"].keys())

    @cached_property
    def rates(self) -> Floats:
        """α_t = lr·η_t, of shape (rates, T)."""
        stored = self.settings["factors"]
        _, factors = schedules.factors(self.settings["schedule"] if stored is None else stored, self.steps)
        return self.lrs[:, None] * factors

    @cached_property
    def dataset(self) -> xr.Dataset:
        """All traces as an xarray data set.

        Dimensions: ``algorithm``, ``lr``, ``seed``; ``step`` (0 … T − 1, every k-th) for loss f(x_t, s_t), grad_sq
        ‖g_t‖², rate α_t, size, delta δ_t and distance ‖x_t − x_1‖; ``epoch`` (0 is the start) for train_loss and
        valid_loss. One number per run: status (``finished``, ``diverged``, ``stopped``, ``missing``), diverged_at (−1
        if not), violations of the lower bound, and the full training loss at x_T (last_loss), at the averaged iterate
        (average_loss) and the best one (best_loss). After divergence numbers are ∞. NaN stands for what was not
        measured: runs that are missing, valid_loss of a problem without validation rows, average_loss of networks.
        """
        from surefoot.study._dataset import build

        with self._opened(Store.read) as store:
            return build(self.settings, store.traces(self._context))

    @cached_property
    def initial_loss(self) -> float:
        """f(x_1), the loss at the start, which windows and pictures are measured by.

        The full training loss; for networks the mean over the seeds of the first batch losses. They are trained on
        another function than they are evaluated on: before the first step the averages of batch norm are those of no
        data, and in evaluation mode (entry 0 of train_loss) ResNet20 starts between 10 and 80 instead of below 4.
        """
        name = "loss" if self.is_network else "train_loss"
        start = self.dataset[name].values[..., 0]
        if np.isnan(start).all():
            raise ValueError("the study has no finished run yet")
        # All runs of a seed begin with the same point and batch, so that one of them tells what others lack.
        of_seeds = np.where(np.isfinite(start), start, np.inf).min(axis=(0, 1))
        finite = of_seeds[np.isfinite(of_seeds)]
        if not len(finite):
            return float("inf")
        return float(finite.mean() if self.is_network else finite[0])

    @cached_property
    def optimal_loss(self) -> float:
        """f⋆; where the problem does not tell, the smallest full training loss that any run of the study has seen."""
        value = self.optimum().value
        if value is not None:
            return value
        seen = np.concatenate([self.dataset[name].values.ravel() for name in ("train_loss", *FINAL_FIELDS)])
        return float(np.nanmin(seen))

    def optimum(self) -> KnownOptimum:
        """What is known about the minimum: from the problem, or from the file that has noted it."""
        known = self.facts().get("optimum")
        if known is not None:
            return KnownOptimum(**known)
        if self.problem is None:
            return KnownOptimum(None, False, None, "it was not computed when the study ran")
        with one_blas_thread():  # small solves: threads cost more than they give, and the bits would depend on them
            found = self.problem.optimum()
        far = None if found.point is None else float(np.linalg.norm(found.point - self.problem.initial_point()))
        optimum = KnownOptimum(found.value, found.exists, far, found.reason)
        self.remember("optimum", optimum._asdict())
        return optimum

    def facts(self) -> dict[str, Any]:
        """What was computed about the problem and kept with the runs."""
        with self._opened(Store.read) as store:
            return store.facts(self.settings["problem"]["fingerprint"])

    def remember(self, name: str, value: Any) -> None:
        """Keep a JSON-able fact about the problem with the runs, such as an estimate of σ²."""
        with self._opened(Store.write) as store:
            store.remember(self.settings["problem"]["fingerprint"], name, value)

    def envelope(self) -> xr.DataArray:
        """The Moreau envelope of the full training loss at the start, with parameter S_1 = Σ α_t, for every rate.

        Computed once (one convex solve per rate) and kept with the runs; a result that was loaded from a file has it
        only if it was asked for when the problem was at hand.
        """
        import xarray as xr

        parameters = self.rates.sum(axis=-1)
        envelopes: dict[float, float] = dict(self.facts().get("envelope", []))
        missing = np.array([parameter for parameter in parameters if parameter not in envelopes])
        if len(missing):
            if self.problem is None:
                raise ValueError(
                    "the envelope was not computed when the study ran, and a file does not hold the problem: run the "
                    "study again with the same store (nothing is recomputed), then ask its result for the envelope"
                )
            with one_blas_thread():
                values = np.asarray(self.problem.envelope(missing), float)
            envelopes.update(zip(missing.tolist(), values.tolist(), strict=True))
            self.remember("envelope", sorted(envelopes.items()))
        return xr.DataArray([envelopes[parameter] for parameter in parameters], {"lr": self.lrs}, ("lr",), "envelope")

    def pool(self) -> tuple[Floats, Floats]:
        """The start, and points that runs have visited whose full training loss is known: losses, and ‖x_1 − u_j‖.

        Any of them may stand for x⋆ in the bounds, so that the best one gives a bias without D where no envelope can be
        computed (networks): ``bound(bias="pool")``. A rate that is added later can only lower it.
        """
        data = self.dataset
        every, per_epoch = self.settings["every"], self.settings["steps_per_epoch"]
        epochs = [epoch for epoch in range(1, self.settings["epochs"]) if epoch * per_epoch % every == 0]
        losses = [np.array([self.initial_loss]), data.train_loss.sel(epoch=epochs).values.ravel()]
        distances = [np.zeros(1), data.distance.sel(step=[epoch * per_epoch for epoch in epochs]).values.ravel()]
        if (self.steps - 1) % every == 0:
            losses.append(data.last_loss.values.ravel())
            distances.append(data.distance.values[..., -1].ravel())
        points = np.stack([np.concatenate(losses), np.concatenate(distances)])
        found, far = points[:, np.isfinite(points).all(axis=0)]
        return found, far

    def deltas(self, index: Literal["model", "safe"] = "model") -> xr.DataArray:
        """δ_t of every run: the model's (the paper's), or the safe one, which is proved for every convex loss.

        The exact model (SPP) is its own safe index; with a level both are the safe one at that level.
        """
        if index not in ("model", "safe"):
            raise ValueError(f"index must be 'model' or 'safe', got {index!r}")
        data = self.dataset
        if index == "model":
            return data["delta"]
        deltas = data["delta"].copy(deep=True)
        rates = self.rates[:, None, :: self.settings["every"]]
        traces = [data[name].values for name in ("loss", "grad_sq", "size")]
        for position, method in enumerate(self.settings["methods"]):
            if method["identity"] == EXACT or has_level(method["identity"]):
                continue
            bound = -np.inf if method["lower_bound"] is None else method["lower_bound"]
            loss, grad_sq, size = (values[position] for values in traces)
            safe = safe_delta(loss, grad_sq, np.broadcast_to(rates, loss.shape), size, bound)
            deltas.values[position] = np.where(np.isnan(loss), np.nan, safe)
        return deltas

    def bound(
        self,
        distance: float | None = None,
        *,
        bias: Literal["envelope", "pool"] | None = None,
        index: Literal["model", "safe"] = "model",
        kind: Literal["last", "average"] = "last",
    ) -> xr.Dataset:
        """Ω_T of Theorem 3.4 (or Ω_avg of 3.3) for every method and rate: ``bias``, ``noise`` and ``total``.

        E[δ_t] is the mean over the seeds, so a rate at which one run diverges has an infinite bound. With every = k
        each kept index stands for k steps, and the bound is an estimate.

        Args:
            distance: D, of which the bias is D²/(2 S_1); the total then bounds f − f⋆. By default the study's
                ``distance``, or else the true ‖x_1 − x⋆‖ where a minimiser exists.
            bias: ``"envelope"`` for the Moreau envelope instead, which needs no D; ``"pool"`` for the best of the
                points that the study's runs have visited. The total then bounds f itself.
            index: δ of the model, or the safe one that is proved for every convex loss.
            kind: The bound of the last iterate x_T, or of the average (and the best) one.
        """
        import xarray as xr

        if bias not in (None, "envelope", "pool"):
            raise ValueError(f"bias must be None (then distance counts), 'envelope' or 'pool', got {bias!r}")
        if bias is not None and distance is not None:
            raise ValueError(f"distance and bias={bias!r} exclude each other, got distance={distance!r}")
        if kind not in ("last", "average"):
            raise ValueError(f"kind must be 'last' or 'average', got {kind!r}")
        far = self._distance(distance) if bias is None else 0.0
        deltas = _mean_over_seeds(self.deltas(index)).values
        deltas = np.repeat(deltas, self.settings["every"], axis=-1)[..., : self.steps]
        rates = np.broadcast_to(self.rates, deltas.shape)
        complete = ~np.isnan(deltas).any(axis=-1)

        parts = np.full((2, *complete.shape), np.nan)
        if complete.any():
            compute = bounds.last_iterate if kind == "last" else bounds.average_iterate
            computed = compute(rates[complete], deltas[complete], far)
            parts[:, complete] = computed.bias, computed.noise
        if bias == "envelope":
            parts[0] = np.where(complete, self.envelope().values, np.nan)
        elif bias == "pool":
            losses, distances = self.pool()  # of nothing, if not even the loss at the start is finite
            of_pool = bounds.envelope_bias(self.rates, losses, distances) if len(losses) else np.inf
            parts[0] = np.where(complete, of_pool, np.nan)
        dims = ("algorithm", "lr")
        return xr.Dataset(
            {"bias": (dims, parts[0]), "noise": (dims, parts[1]), "total": (dims, parts.sum(axis=0))},
            {"algorithm": self.algorithms, "lr": self.lrs},
            {"kind": kind, "index": index, "bias": bias or "distance", "distance": far},
        )

    def sensitivity(
        self,
        distance: float | None = None,
        *,
        bias: Literal["envelope", "pool"] | None = None,
        index: Literal["model", "safe"] = "model",
        kind: Literal["last", "average"] = "last",
        tolerance: float = 0.1,
    ) -> SensitivityTable:
        """How much each method depends on its rate, and how well the bound tells: one row per method.

        The loss is the mean over the seeds of f(x_T), or of the averaged iterate's for ``kind="average"``; arguments
        are those of :meth:`bound`, and ``tolerance`` is the share of f(x_1) − f⋆ that a rate may lose to stay in the
        window. See :class:`~surefoot.study.Sensitivity` for the columns.
        """
        from surefoot.study._sensitivity import measure_windows

        loss = self._final_loss(kind)
        total = self.bound(distance, bias=bias, index=index, kind=kind).total
        scale = (self.initial_loss, self.optimal_loss)
        return measure_windows(self.algorithms, self.lrs, loss.values, total.values, *scale, tolerance=tolerance)

    def plot(
        self, distance: float | None = None, *, ax: Axes | None = None, bound: bool = True, **options: Any
    ) -> Axes:
        """Draw the final loss (solid) and what bounds it (dashed) over the rate, one colour per method.

        Where the bound is one of f − f⋆, f⋆ is added. At the upper edge triangles are losses far above the one at the
        start, and crosses are runs that diverged.

        Args:
            distance: As in :meth:`bound`, as are all other options.
            ax: Where to draw; a new figure by default.
            bound: Whether to draw the bound.
            **options: ``bias``, ``index``, ``kind``.
        """
        from surefoot.study._plot import draw

        loss = self._final_loss(options.get("kind", "last"))
        total = self.bound(distance, **options).total.values if bound else None
        if total is not None and options.get("bias") is None:
            total = self.optimal_loss + total
        return draw(self.algorithms, self.lrs, loss.values, total, self.initial_loss, ax)

    def report(self, path: str | os.PathLike[str], *, title: str | None = None) -> Path:
        """Write one self-contained, interactive HTML page that answers which rates hold; see :mod:`surefoot.report`."""
        from surefoot.report import write

        return write(self, path, title=title)

    def to_frame(self, table: Literal["runs", "steps", "epochs"] = "runs") -> pd.DataFrame:
        """A row per run, step or epoch: algorithm, lr, seed (and step or epoch), then a column per variable over them.

        Pandas writes it as CSV, Parquet, …; :attr:`dataset` writes itself as netCDF.
        """
        dims = ("algorithm", "lr", "seed", *_DIMS[one_of("table", table, _DIMS)])
        names = [name for name, variable in self.dataset.data_vars.items() if variable.dims == dims]
        return self.dataset[names].to_dataframe(dim_order=dims).reset_index()[[*dims, *names]]

    def __repr__(self) -> str:
        settings = self.settings
        return (
            f"<Result {settings['problem']['name']}: {', '.join(self.algorithms)}; {len(self.lrs)} rates, "
            f"{len(settings['seeds'])} seeds, {self.steps} steps>"
        )

    def __str__(self) -> str:
        from surefoot.study._show import text

        return text(self)

    def _repr_html_(self) -> str:
        from surefoot.study._show import html

        return html(self)

    def _final_loss(self, kind: str) -> xr.DataArray:
        loss = _mean_over_seeds(self.dataset["last_loss" if kind == "last" else "average_loss"])
        if kind == "average" and np.isnan(loss.values).all():
            raise ValueError("kind must be 'last' for networks, whose averages of parameters are not measured")
        return loss

    def _distance(self, distance: float | None) -> float:
        if distance is not None:
            return checks.number("distance", distance, positive=True)
        if self.settings["distance"] is not None:
            return float(self.settings["distance"])
        optimum = self.optimum()
        if optimum.distance is None:
            raise ValueError(
                "distance must be given (or bias='envelope' or 'pool'), because ‖x_1 − x⋆‖ is not known: "
                f"{optimum.reason}"
            )
        return optimum.distance


def _mean_over_seeds(values: xr.DataArray) -> xr.DataArray:
    """The mean over the seeds, NaN if one value is missing; large numbers may overflow to ∞, which is what they are."""
    with np.errstate(over="ignore"):
        return values.mean("seed", skipna=False)
