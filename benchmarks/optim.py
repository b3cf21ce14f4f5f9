"""Speed of the optimizers against torch's and other people's, as ratios within one run.

    surefoot build
    python benchmarks/optim.py [--quick] [--threads 2 | --busy] [--shapes resnet20 gpt2 blocks training]

Every optimizer steps on the same parameters and gradients, one after the other, over and over; a ratio is that of the
shortest times. The goals are those of the compiled passes, which ``surefoot build`` makes. Two shapes: ResNet20 (59
tensors, 0.27 M) and GPT-2 small (148 tensors, 124 M). The baseline is ``torch.optim.SGD(foreach=True)`` = 1, for the
rows in Adam's metric ``torch.optim.AdamW(fused=True)`` = 1. Each goal is printed with what was required (must), hoped
for (aim) and met. Surefoot and Muon, whose steps are products of matrices, step on two of GPT-2's twelve blocks (the
ratio is the same for all of them).
"""

from __future__ import annotations

import argparse
import importlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

import surefoot.optim as sfo
from _timing import Turns
from surefoot.optim import native
from surefoot.problems import networks

Params = list[torch.nn.Parameter]
Step = Callable[[], Any]
Factory = Callable[[Params], Step]

ADAMS = ("NGNAdam", "MoMoAdam", "NGNMomentumAdam")

GOALS = {  # (shapes, optimizer): (baseline, must, aim)
    ("gpt2", "SPS"): ("SGD", 1.5, 1.35),
    ("gpt2", "NGN"): ("SGD", 1.5, 1.35),
    ("gpt2", "NGNMomentum"): ("SGD", 2.3, 2.0),
    ("gpt2", "MoMo"): ("SGD", 4.5, 2.5),
    ("gpt2", "SPSAdam"): ("AdamW", 1.9, 1.6),
    ("gpt2", "NGNAdam"): ("AdamW", 1.9, 1.6),
    ("gpt2", "MoMoAdam"): ("AdamW", 1.9, 1.6),
    ("blocks", "Surefoot"): ("Muon", 1.3, 1.2),
    ("resnet20", "SPS"): ("SGD", 1.8, 1.3),
    ("resnet20", "NGN"): ("SGD", 1.8, 1.3),
    ("resnet20", "MoMo"): ("SGD", 4.5, 2.5),
    ("resnet20", "NGNMomentum"): ("SGD", 4.5, 2.5),
    ("resnet20", "SPSAdam"): ("AdamW", 2.6, 1.5),
    ("resnet20", "NGNAdam"): ("AdamW", 2.6, 1.5),
    ("resnet20", "MoMoAdam"): ("AdamW", 2.6, 1.5),
    ("gpt2", "SPS, level"): ("SPS", 1.05, 1.02),
    ("gpt2", "NGNAdam, level"): ("NGNAdam", 1.05, 1.02),
    ("resnet20", "SPS, level"): ("SPS", 1.05, 1.02),
    ("resnet20", "NGNAdam, level"): ("NGNAdam", 1.05, 1.02),
}
TRAINING = 1.01
"""What a whole training step of ResNet20 may take, over one with torch's SGD."""


def resnet20() -> list[tuple[int, ...]]:
    return [tuple(p.shape) for p in networks.resnet20().parameters()]


def gpt2() -> list[tuple[int, ...]]:
    return [(50257, 768), (1024, 768), *blocks(12), (768,), (768,)]


def blocks(count: int) -> list[tuple[int, ...]]:
    shapes: list[tuple[int, ...]] = []
    for _ in range(count):
        shapes += [(768,), (768,), (2304, 768), (2304,), (768, 768), (768,)]
        shapes += [(768,), (768,), (3072, 768), (3072,), (768, 3072), (768,)]
    return shapes


def with_loss(optimizer: Any) -> Step:
    loss = torch.tensor(2.0)
    return lambda: optimizer.step(loss=loss)


def peer(module: str, name: str) -> Factory:
    def make(params: Params) -> Step:
        optimizer = getattr(importlib.import_module(module), name)(params, lr=1e-9)
        if module == "momo":
            return with_loss(optimizer)
        if hasattr(optimizer, "train"):
            optimizer.train()
        step: Step = optimizer.step
        return step

    return make


def row(name: str, **options: Any) -> Factory:
    if name in ADAMS:
        options["fused"] = True
    return lambda params: with_loss(getattr(sfo, name)(params, 1e-9, **options))


BASELINES: dict[str, Factory] = {
    "SGD": lambda params: torch.optim.SGD(params, 1e-9, foreach=True).step,
    "AdamW": lambda params: torch.optim.AdamW(params, 1e-9, fused=True).step,
    "Muon": row("Muon"),
}
PEERS: dict[str, Factory] = {
    "torch AdamW(fused)": BASELINES["AdamW"],
    "torch AdamW(foreach)": lambda params: torch.optim.AdamW(params, 1e-9, foreach=True).step,
    "momo-opt Momo": peer("momo", "Momo"),
    "momo-opt MomoAdam": peer("momo", "MomoAdam"),
    "schedulefree SGD": peer("schedulefree", "SGDScheduleFree"),
    "Prodigy": peer("prodigyopt", "Prodigy"),
}


ROWS = [name for name in sfo.TABLE if "Muon" not in name and name != "Surefoot"]
"""A step of the Muons is Newton–Schulz, and the rest of it does not show."""

LEVELS = ("SPS", "NGNAdam")
"""Rows that are also measured with a level, against themselves without."""

COUNTERPARTS = {
    "momo-opt Momo": "MoMo",
    "momo-opt MomoAdam": "MoMoAdam",
    "torch AdamW(foreach)": "MoMoAdam",
    "schedulefree SGD": "NGNMomentum",
    "Prodigy": "NGNAdam",
}
"""Which of ours does the same job."""


TURNS = Turns()
PATIENCE = {"seconds": 10.0}
"""What a pair may have on top, until a turn of both was undisturbed."""


def ratio(params: Params, factory: Factory, baseline: Factory, repeats: int) -> float:
    """One optimizer over another, taking turns: two states at a time fit into memory, and drift cancels."""
    steps = {"baseline": baseline(params), "other": factory(params)}
    times = TURNS.best(steps, repeats, PATIENCE["seconds"])
    return times["other"] / times["baseline"]


def compare(
    name: str, shapes: list[tuple[int, ...]], repeats: int, rows: Sequence[str] = ROWS, peers: bool = True
) -> dict[str, float]:
    torch.manual_seed(0)
    params = [torch.nn.Parameter(0.02 * torch.randn(shape)) for shape in shapes]
    for p in params:
        p.grad = 1e-3 * torch.randn_like(p)
    print(f"\n{name}: {len(params)} tensors, {sum(p.numel() for p in params) / 1e6:.2f} M parameters")
    ratios: dict[str, float] = {}
    for optimizer in rows:
        baseline = "AdamW" if optimizer in ADAMS else "Muon" if optimizer == "Surefoot" else "SGD"
        ratios[optimizer] = ratio(params, row(optimizer), BASELINES[baseline], repeats)
        print(f"  {optimizer:22s} {ratios[optimizer]:7.2f}  times {baseline}", flush=True)
    for optimizer in LEVELS if peers else ():
        level = row(optimizer, lower_bound="level")
        ratios[f"{optimizer}, level"] = ratio(params, level, row(optimizer), repeats)
        print(f"  {optimizer + ', level':22s} {ratios[optimizer + ', level']:7.2f}  times {optimizer}", flush=True)
    for other, factory in PEERS.items() if peers else ():
        ours = COUNTERPARTS.get(other)
        try:
            value = ratio(params, factory, BASELINES["SGD"], max(3, repeats // 4))
            beaten = ratio(params, factory, row(ours), max(3, repeats // 4)) if ours else 0.0
        except ImportError:
            print(f"  {other:22s}       –  not installed")
        else:
            print(
                f"  {other:22s} {value:7.2f}  times SGD" + (f", {beaten:.1f} times {ours}" if ours else ""), flush=True
            )
    return ratios


def full_training_step(repeats: int) -> float:
    """A whole training step of ResNet20 (batch 128) with NGN over one with torch's SGD."""
    torch.manual_seed(0)
    net = networks.resnet20().to(memory_format=torch.channels_last)
    images = torch.randn(128, 3, 32, 32).to(memory_format=torch.channels_last)
    labels = torch.randint(10, (128,))
    sgd, ngn = torch.optim.SGD(net.parameters(), 1e-9), sfo.NGN(net.parameters(), 1e-9)

    def train(step: Callable[[torch.Tensor], Any]) -> None:
        net.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(images), labels)
        loss.backward()
        step(loss)

    times = TURNS.best(
        {"SGD": lambda: train(lambda loss: sgd.step()), "NGN": lambda: train(lambda loss: ngn.step(loss=loss))}, repeats
    )
    return times["NGN"] / times["SGD"]


def report(measured: dict[str, dict[str, float]], training: float | None) -> bool:
    """Print goals and results; whether everything that must be is."""
    print(f"\n{'goal':34s} {'must':>6s} {'aim':>6s} {'measured':>9s}  met")
    good = True
    for (shapes, name), (baseline, must, aim) in GOALS.items():
        if shapes not in measured:
            continue
        value = measured[shapes][name]
        verdict = "aim" if value <= aim else "must" if value <= must else "NO"
        good &= value <= must
        print(f"{f'{name} / {baseline}, {shapes}':34s} {must:6.2f} {aim:6.2f} {value:9.2f}  {verdict}")
    if training is None:
        return good
    verdict = "must" if training <= TRAINING else "NO"
    print(f"{'training step, NGN / SGD, resnet20':34s} {TRAINING:6.2f} {'':6s} {training:9.3f}  {verdict}")
    return good and training <= TRAINING


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few repeats")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--busy", action="store_true", help="processor time of one thread, if the machine has other work"
    )
    parts = ("resnet20", "gpt2", "blocks", "training")
    parser.add_argument("--shapes", nargs="+", choices=parts, default=parts, help="only some of the comparisons")
    parser.add_argument("--patience", type=float, default=10.0, help="seconds that a pair may wait for a quiet turn")
    arguments = parser.parse_args()
    PATIENCE["seconds"] = arguments.patience
    if arguments.busy:
        arguments.threads, TURNS.clock = 1, time.thread_time
    torch.set_num_threads(arguments.threads)
    small, large, training = (60, 3, 3) if arguments.quick else (400, 15, 15)
    comparisons = {
        "resnet20": lambda: compare("resnet20", resnet20(), small),
        "gpt2": lambda: compare("gpt2", gpt2(), large),
        "blocks": lambda: compare("two blocks of gpt2", blocks(2), 3, ["Surefoot"], peers=False),
    }
    measured = {name: comparisons[name]() for name in arguments.shapes if name in comparisons}
    met = report(measured, full_training_step(training) if "training" in arguments.shapes else None)
    print(f"\ncompiled passes: {'not built (surefoot build)' if native.library() is None else 'in use'}")
    print(f"{TURNS}; threads: {arguments.threads}" + (", their processor time" if arguments.busy else ""))
    print("Everything that must be met is." if met else "Not everything that must be met is.")


if __name__ == "__main__":
    main()
