"""What the finders of all frameworks share: checks of their arguments, the search, and loaders without workers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from torch import nn

from surefoot._base import checks
from surefoot._base.progress import Tell
from surefoot.integrations._trainings import Trainings
from surefoot.search import Found, tune

Rates = float | Iterable[float] | Mapping[str, float] | None

OPTIONS = ("extend", "max_states", "maximize", "refine", "seeds", "tolerance")
"""Arguments of :func:`~surefoot.search.tune` that a finder takes."""


class Search:
    """What the arguments of ``find_lr`` ask for; what cannot be right is refused before anything starts."""

    def __init__(
        self, lrs: Rates, horizon: int | None, metric: str | None, progress: Tell | None, options: Mapping[str, Any]
    ) -> None:
        for name in options:
            if name == "processes":
                if options[name] not in (None, 1):
                    raise ValueError(f"processes must be 1 inside a trainer with its one model, got {options[name]!r}")
            elif name not in OPTIONS:
                raise TypeError(f"find_lr takes the options {', '.join(OPTIONS)} of surefoot.tune, got {name!r}")
        if horizon is not None:
            checks.whole("horizon", horizon, 1)
        if metric is not None and not isinstance(metric, str):
            raise TypeError(f"evaluate must be the name of a metric, got {metric!r}")
        if options.get("maximize") and metric is None:
            raise ValueError("maximize=True needs evaluate=, the name of the metric that is to be large")
        self._lrs = None if lrs is None else checks.rates(lrs)
        self._horizon, self._progress, self._options = horizon, progress, options

    def run(self, trainings: Trainings, planned: float, how: str, *, shown: bool) -> Found:
        """Tune the rate of some trainings.

        Args:
            trainings: What is searched among.
            planned: Steps that the trainer plans; 0 or less, or ∞, if it does not say.
            how: A sentence on what would make the trainer say them.
            shown: Whether a bar is shown if ``progress`` is None.
        """
        horizon = self._horizon
        if horizon is None:
            if not 0 < planned < math.inf:
                raise ValueError(f"horizon must be given: the trainer does not say how many steps it trains. {how}")
            horizon = int(planned)
        elif 0 < planned < horizon:
            raise ValueError(f"horizon must be at most the {planned:g} steps that the trainer plans, got {horizon}")
        trainings.check_data()
        progress = shown if self._progress is None else self._progress
        found = tune(trainings, self._lrs, horizon, progress=progress, **{**self._options, "processes": 1})
        # A run would keep the trainer's model.
        return replace(found, run=None, warnings=(*found.warnings, *trainings.notes))


def check_module(module: nn.Module) -> None:
    """Refuse parameters that have no shape yet."""
    lazy = [name for name, p in module.named_parameters() if nn.parameter.is_lazy(p)]
    if lazy:
        raise ValueError(
            f"the model must know the shape of its parameters, {lazy[0]!r} is lazy: run a batch through it"
        )


def without_workers(loader: Any) -> Any:
    """The data loader itself, which loads in this process from now on."""
    loader.num_workers, loader.timeout, loader.prefetch_factor = 0, 0, None
    return loader
