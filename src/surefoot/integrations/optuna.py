"""An Optuna pruner on partial bounds: a trial ends once its bound is proved to be worse than a finished one's."""

from __future__ import annotations

import math

from surefoot._base.missing import missing
from surefoot.monitor import PartialBound, StabilityMonitor

try:
    from optuna.pruners import BasePruner
    from optuna.study import Study
    from optuna.trial import FrozenTrial, Trial, TrialState
except ImportError as error:
    raise missing(__name__, error, "optuna") from error

_BIAS, _STEP, _STOPPED = "surefoot:bias", "surefoot:step", "surefoot:stopped"


def report(trial: Trial, monitor: StabilityMonitor) -> None:
    """Report the noise of a run's partial bound to a trial, and its bias as a user attribute.

    Call it every few steps, and once more at the end: the last report of a finished trial is its whole bound, against
    which others are pruned. A step that was reported already is left out. The monitor needs a horizon and a distance,
    the same in all trials.

    Args:
        trial: The trial.
        monitor: The monitor of its run.
    """
    if monitor.horizon is None or monitor.distance is None:
        raise ValueError(
            "the monitor must have a horizon and a distance, or the smallest rate would have the smallest bound; got "
            f"horizon={monitor.horizon!r}, distance={monitor.distance!r}"
        )
    if trial.user_attrs.get(_STEP) == monitor.steps:
        return
    bound = monitor.bound()
    trial.set_user_attr(_STEP, monitor.steps)
    trial.set_user_attr(_BIAS, bound.bias)
    if monitor.stopped is not None:
        trial.set_user_attr(_STOPPED, monitor.stopped.reason)
    trial.report(bound.noise, monitor.steps)


class PartialBoundPruner(BasePruner):  # type: ignore[misc, unused-ignore]
    """Prunes trials whose partial bound exceeds ``slack`` times the best bound of a finished trial.

    This is :class:`~surefoot.monitor.PartialBound` across trials: the terms of the bound's noise only add up, so what
    is pruned could not have had the best bound. A trial whose own monitor has stopped is pruned as well. Report with
    :func:`report`; other values are not understood.

    Args:
        slack: 1 prunes whatever cannot have the best bound, larger values leave room for a loss that is better than
            its bound.

    .. code-block:: python

        study = optuna.create_study(pruner=PartialBoundPruner())

        def objective(trial):
            ...
            with StabilityMonitor(optimizer, horizon=T, distance=D) as monitor:
                for step in range(T):
                    ...
                    if step % 20 == 0:
                        report(trial, monitor)
                        if trial.should_prune():
                            raise optuna.TrialPruned
            report(trial, monitor)
            return final_loss
    """

    def __init__(self, slack: float = 3.0) -> None:
        self._slack = PartialBound(1.0, slack).slack

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        """Whether the trial should end."""
        if _STOPPED in trial.user_attrs:
            return True
        if not trial.intermediate_values:
            return False
        noise = trial.intermediate_values[max(trial.intermediate_values)]
        if not math.isfinite(noise):
            return True
        totals = [_total(done) for done in study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))]
        best = min((total for total in totals if 0 < total < math.inf), default=math.inf)
        return best < math.inf and noise > PartialBound(best, self._slack).limit


def _total(trial: FrozenTrial) -> float:
    """The bound of a finished trial, ∞ if it did not report one."""
    if not trial.intermediate_values or _BIAS not in trial.user_attrs:
        return math.inf
    return float(trial.intermediate_values[max(trial.intermediate_values)] + trial.user_attrs[_BIAS])
