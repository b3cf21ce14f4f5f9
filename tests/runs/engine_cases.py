"""Problems, methods and a way to run them, for the tests of the engine."""

import numpy as np

from surefoot.problems import LinearRegression, LogisticRegression, ToyFunction
from surefoot.runs import Executor, Record, Settings, SweepWork
from surefoot.runs._methods import parse_method
from surefoot.runs._types import EPOCH_FIELDS, FINAL_FIELDS, STEP_FIELDS, Key

METHODS = ("sgd", "sps", "ngn", "log-ngn", "power(p=0.25)", "sps(lower_bound=-2)", "spp")


def small_logistic(classes, **options):
    random = np.random.default_rng(3)
    X = random.standard_normal((30, 6))
    y = np.argmax(X[:, :classes] + random.standard_normal((30, classes)), axis=1)
    return LogisticRegression((X, y), **({"validation": 0.2} | options))


# Each with a batch size and rates at which every method is stable.
PROBLEMS = {
    "least squares, b < d": (LinearRegression(), 5, (0.003, 0.03)),
    "least squares, b > d": (LinearRegression(n=40, d=4, noise=0.5, data_seed=2), 8, (0.003, 0.02)),
    "ridge": (LinearRegression(n=30, d=6, ridge=0.3, noise=0.1), 4, (0.003, 0.02)),
    "three classes, b < d": (small_logistic(3), 4, (0.1, 0.5)),
    "three classes, b > d": (small_logistic(3, ridge=0.05), 8, (0.1, 0.5)),
    "two classes": (small_logistic(2), 4, (0.1, 0.5)),
    "vowel": (LogisticRegression("vowel"), 16, (0.1, 0.5)),
    "toy": (ToyFunction(), 1, (0.5, 2.0)),
}


def runs_of(methods, lrs, seeds):
    names = [parse_method(name).name for name in methods]
    return [Key(name, float(lr), seed) for name in names for lr in lrs for seed in seeds]


def run_batched(
    problem, runs, *, steps_per_epoch, epochs, batch_size, schedule, on_chunk, sampling="shuffle", every=1, rules=(),
    distance=None, processes=None,
):  # fmt: skip
    """A sweep without a study."""
    settings = Settings(
        steps_per_epoch, epochs, batch_size, np.asarray(schedule), sampling, every, tuple(rules), distance
    )
    work = SweepWork(problem, {run.method: parse_method(run.method) for run in runs}, settings)
    records = [Record(run, settings.steps) for run in runs]
    with Executor(processes=processes) as executor:
        executor.advance(work, records, settings.steps, on_chunk)


def sweep(problem, runs, batch_size, epochs=2, schedule=None, **options):
    """The traces of some runs, in the order of the runs."""
    steps = problem.n_rows // batch_size
    factors = np.ones(steps * epochs) if schedule is None else schedule(steps * epochs)
    found = {}

    def keep(traces):
        found.update({trace.key: trace for trace in traces})

    run_batched(
        problem,
        runs,
        steps_per_epoch=steps,
        epochs=epochs,
        batch_size=batch_size,
        schedule=factors,
        on_chunk=keep,
        **options,
    )
    return [found[run] for run in runs]


def numbers(trace):
    """All numbers of a trace as bytes."""
    arrays = [trace.steps[name] for name in STEP_FIELDS] + [trace.epochs[name] for name in EPOCH_FIELDS]
    final = [trace.final[name] for name in FINAL_FIELDS]
    return b"".join(np.ascontiguousarray(array).tobytes() for array in [*arrays, np.array(final)])
