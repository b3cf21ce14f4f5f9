"""Speed of sweeps against one PyTorch loop a run and against JAX, on one core; and how 10,000 runs scale.

python benchmarks/sweep.py

Ratios are measured in one run, the shortest of repeats that take turns, both sides on the same single core and in
seconds of that core. A PyTorch run of a kind is timed and counted as often as the sweep has runs of that kind: all runs
of a method take the same time.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import numpy as np
from rich.console import Console
from rich.table import Table

from _timing import Turns
from surefoot.problems import LinearRegression, LogisticRegression, Problem
from surefoot.runs import Executor, Key, Record, Settings, SweepWork, Trace, parse_method

BASE_LRS = np.logspace(-3, 2, 16)
DNA_LRS = np.logspace(-2, 2, 9)
METHODS = ("sgd", "sps", "ngn")


class Row(NamedTuple):
    """A comparison, in seconds, with what the ratio of the two must be and should be."""

    what: str
    ours: float
    other: float
    must: float | None
    aim: float | None


def seconds(function: Callable[[], object]) -> float:
    begin = time.process_time()
    function()
    return time.process_time() - begin


def batched(
    problem: Any, keys: list[Key], *, steps_per_epoch: int, epochs: int, batch_size: int, schedule: Any
) -> Callable[[], list[Trace]]:
    """A sweep without a study, in this process, with its plan made."""
    settings = Settings(steps_per_epoch, epochs, batch_size, schedule, "shuffle", 1)
    work = SweepWork(problem, {name: parse_method(name) for name in {key.method for key in keys}}, settings)

    def advance() -> list[Trace]:
        traces: list[Trace] = []
        records = [Record(key, settings.steps) for key in keys]
        with Executor(processes=1) as executor:
            executor.advance(work, records, settings.steps, traces.extend)
        return traces

    return advance


def sweep(
    problem: Problem, methods: tuple[str, ...], lrs: Any, seeds: int, epochs: int, batch_size: int
) -> Callable[[], list[Trace]]:
    """Our side: all runs with all their traces, in this process. The grid is laid before, as for JAX."""
    runs = [Key(name, float(lr), seed) for name in methods for lr in lrs for seed in range(seeds)]
    steps = problem.n_rows // batch_size
    return batched(
        problem,
        runs,
        steps_per_epoch=steps,
        epochs=epochs,
        batch_size=batch_size,
        schedule=np.ones(steps * epochs),
    )


# --- One PyTorch loop a run, as training frameworks do it -------------------------------------------------------------


def torch_optimizer(method: str, parameters: Any, lr: float) -> Any:
    import torch

    if method == "sgd":
        return torch.optim.SGD(parameters, lr=lr)

    class Polyak(torch.optim.Optimizer):
        """SPS and NGN in the shape of torch.optim."""

        @torch.no_grad()
        def step(self, loss: Any) -> None:  # type: ignore[override]
            for group in self.param_groups:
                with_gradient = [p for p in group["params"] if p.grad is not None]
                grad_sq = sum(p.grad.pow(2).sum() for p in with_gradient)
                if method == "sps":
                    size = torch.clamp(loss / grad_sq, max=group["lr"])
                else:
                    size = group["lr"] / (1 + group["lr"] * grad_sq / (2 * loss))
                for p in with_gradient:
                    p.sub_(size * p.grad)

    return Polyak(parameters, {"lr": lr})


def torch_run(problem: Any, method: str, lr: float, epochs: int, batch_size: int) -> list[float]:
    """One run that records losses and gradient norms, and the training loss of every epoch."""
    import torch

    X = torch.from_numpy(np.array(problem.A))
    classes = getattr(problem, "classes", None)
    y = torch.from_numpy(np.array(problem.y)) if classes else torch.from_numpy(np.array(problem.y))[:, None]
    model = torch.nn.Linear(problem.features, classes or 1, bias=False, dtype=torch.float64)
    parameters = list(model.parameters())
    optimizer = torch_optimizer(method, parameters, lr)

    def loss_of(predictions: Any, targets: Any) -> Any:
        if classes:
            return torch.nn.functional.cross_entropy(predictions, targets)
        return 0.5 * torch.nn.functional.mse_loss(predictions, targets)

    losses, norms, epoch_losses = [], [], []
    generator = torch.Generator().manual_seed(0)
    for _ in range(epochs):
        order = torch.randperm(len(X), generator=generator)
        for step in range(len(X) // batch_size):
            rows = order[step * batch_size : (step + 1) * batch_size]
            optimizer.zero_grad()
            loss = loss_of(model(X[rows]), y[rows])
            loss.backward()
            if method == "sgd":
                optimizer.step()
            else:
                optimizer.step(loss=loss.detach())
            losses.append(loss.item())
            norms.append(sum(p.grad.pow(2).sum() for p in parameters).item())
        with torch.no_grad():
            epoch_losses.append(loss_of(model(X), y).item())
    return epoch_losses


def torch_prox_run(problem: Any, lr: float, epochs: int, batch_size: int) -> None:
    """One run of SPP on least squares, a dense system a step."""
    import torch

    A, b = torch.from_numpy(np.array(problem.A)), torch.from_numpy(np.array(problem.y))
    x = torch.from_numpy(problem.initial_point())
    losses = []
    identity = torch.eye(problem.features, dtype=torch.float64)
    for _ in range(epochs):
        order = torch.randperm(len(A))
        for step in range(len(A) // batch_size):
            rows = order[step * batch_size : (step + 1) * batch_size]
            A_s, b_s = A[rows], b[rows]
            losses.append((A_s @ x - b_s).pow(2).mean().item() / 2)
            x = torch.linalg.solve(A_s.T @ A_s / batch_size + identity / lr, x / lr + A_s.T @ b_s / batch_size)


# --- JAX: jit + vmap + scan -------------------------------------------------------------------------------------------


def jax_sweep(problem: LinearRegression, epochs: int, batch_size: int) -> Callable[[], object]:
    """The base sweep as one compiled function, with the traces that ours has."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    A, b, start = jnp.asarray(problem.A), jnp.asarray(problem.y), jnp.asarray(problem.initial_point())
    steps = problem.n_rows // batch_size

    def loss_of(x: Any, rows: Any) -> Any:
        return 0.5 * jnp.mean((A[rows] @ x - b[rows]) ** 2)

    def run(method: Any, lr: Any, seed: Any) -> Any:
        def step(carry: Any, rows: Any) -> Any:
            x, total = carry
            loss, gradient = jax.value_and_grad(loss_of)(x, rows)
            grad_sq = gradient @ gradient
            sps, ngn = jnp.minimum(lr, loss / grad_sq), lr / (1 + lr * grad_sq / (2 * loss))
            size = jnp.select([method == 0, method == 1], [lr, sps], ngn)
            sgd_delta, sps_delta = lr * grad_sq / 2, size * (1 - size / (2 * lr)) * grad_sq
            delta = jnp.select([method == 0, method == 1], [sgd_delta, sps_delta], size * grad_sq / 2)
            record = (loss, grad_sq, size, delta, jnp.linalg.norm(x - start))
            return (x - size * gradient, total + x), record

        def epoch(carry: Any, key: Any) -> Any:
            order = jax.random.permutation(key, problem.n_rows)[: steps * batch_size].reshape(steps, batch_size)
            carry, records = jax.lax.scan(step, carry, order)
            return carry, (records, 0.5 * jnp.mean((A @ carry[0] - b) ** 2))

        keys = jax.random.split(jax.random.key(seed), epochs)
        (_, total), records = jax.lax.scan(epoch, (start, jnp.zeros_like(start)), keys)
        mean = total / (steps * epochs)
        return records, 0.5 * jnp.mean((A @ mean - b) ** 2)

    grid = np.array([(m, lr, s) for m in range(3) for lr in BASE_LRS for s in range(5)])
    compiled = jax.jit(jax.vmap(run))
    arguments = (jnp.asarray(grid[:, 0]), jnp.asarray(grid[:, 1]), jnp.asarray(grid[:, 2], jnp.int32))
    return lambda: jax.tree.map(np.asarray, compiled(*arguments))


# --- 10,000 runs ------------------------------------------------------------------------------------------------------


def many_runs(count: int, answer: Any) -> None:
    """A study of ``count`` runs into a store: seconds, and the peak memory of this process in GB."""
    from surefoot.study import Study

    study = Study(
        "linear-regression",
        methods=["sgd", "sps"],
        lrs=np.logspace(-3, 2, count // 10),
        seeds=5,
        epochs=10,
        batch_size=5,
    )
    engine = seconds(lambda: sweep_only(study))
    with tempfile.TemporaryDirectory() as folder:
        stored = seconds(lambda: study.run(Path(folder) / "study.db", processes=1))
    answer.put((engine, stored, peak_memory()))


def peak_memory() -> float:
    """The most memory that this process has held, in GB."""
    status = Path("/proc/self/status")
    if status.exists():  # elsewhere the peak of the parent may be counted in
        return int(status.read_text().partition("VmHWM:")[2].split()[0]) / 1024**2
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2


def sweep_only(study: Any) -> None:
    settings = Settings(study.steps_per_epoch, study.epochs, study.batch_size, study.factors, "shuffle", 1)
    work = SweepWork(study.problem, {method.name: method for method in study.methods}, settings)
    with Executor(processes=1) as executor:
        executor.advance(work, [Record(run, settings.steps) for run in study.runs], settings.steps)


def in_fresh_process(count: int) -> tuple[float, float, float]:
    context = multiprocessing.get_context("spawn")
    answer = context.Queue()
    process = context.Process(target=many_runs, args=(count, answer))
    process.start()
    found: tuple[float, float, float] = answer.get()
    process.join()
    return found


def main() -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    import torch

    torch.set_num_threads(1)
    console = Console(width=130)
    base, dna = LinearRegression(), LogisticRegression("dna")
    jitted = jax_sweep(base, 10, 5)
    compiling = seconds(jitted)
    turns = Turns(time.process_time)
    first = turns.best(
        {
            "ours": sweep(base, METHODS, BASE_LRS, 5, 10, 5),
            "jax": jitted,
            "spp": sweep(base, ("spp",), BASE_LRS, 5, 10, 5),
            "torch spp": lambda: torch_prox_run(base, 0.01, 10, 5),
            **{f"torch {m}": lambda m=m: torch_run(base, m, 0.01, 10, 5) for m in METHODS},
        },
        30,
    )
    second = turns.best(
        {
            "ours": sweep(dna, METHODS, DNA_LRS, 3, 10, 16),
            **{f"torch {m}": lambda m=m: torch_run(dna, m, 0.1, 10, 16) for m in METHODS},
        },
        5,
    )
    ours, loops = first["ours"], [sum(found[f"torch {m}"] for m in METHODS) for found in (first, second)]
    rows = [
        Row("base, 240 runs × 100 steps, against PyTorch loops", ours, 80 * loops[0], 150, 300),
        Row("base with SPP, 80 runs, against PyTorch loops", first["spp"], 80 * first["torch spp"], None, None),
        Row("base against JAX, compile time counted", ours, compiling, 1, None),
        Row("base against JAX, compiled before", ours, first["jax"], 1.5, None),
        Row("dna, 81 runs × 1000 steps, against PyTorch loops", second["ours"], 27 * loops[1], 60, 100),
    ]

    table = Table("what", "ours", "other", "ratio", "must", "aim", "verdict", title="Sweeps, one core")
    for row in rows:
        ratio = row.other / row.ours
        verdict = "–"
        if row.must is not None:
            verdict = "aim met" if row.aim and ratio >= row.aim else "met" if ratio >= row.must else "missed"
        table.add_row(
            row.what,
            f"{row.ours * 1e3:.1f} ms",
            f"{row.other * 1e3:.1f} ms",
            f"{ratio:.1f}",
            "–" if row.must is None else f"≥ {row.must:g}",
            "–" if row.aim is None else f"≥ {row.aim:g}",
            verdict,
        )
    console.print(table)
    console.print(f"{turns}; times are those of the processor")

    scaling = Table("runs", "engine", "µs a run and step", "with the store", "peak memory", title="Linear regression")
    found = {count: in_fresh_process(count) for count in (1000, 2000, 5000, 10_000)}
    for count, (engine, stored, memory) in found.items():
        scaling.add_row(
            f"{count}", f"{engine:.2f} s", f"{engine / count / 100 * 1e6:.2f}", f"{stored:.2f} s", f"{memory:.2f} GB"
        )
    console.print(scaling)
    growth, memory = found[10_000][0] / found[1000][0] / 10, found[10_000][2]
    for what, value, must in (
        ("time a run of 10,000 runs, relative to 1,000 runs", growth, 1.3),
        ("peak memory of 10,000 runs in GB", memory, 2.0),
    ):
        console.print(f"{what}: {value:.2f} (must ≤ {must}: {'met' if value <= must else 'missed'})")


if __name__ == "__main__":
    main()
