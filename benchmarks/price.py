"""What a step costs beside forward and backward passes: a table of docs/evidence.md, recorded in price.csv.

    python benchmarks/price.py [--quick] [--recorded]

Two transformers on characters, of 10.7 M parameters (6 layers of width 384) and 0.8 M (4 of width 128), on one thread.
Times are processor times, the shortest of some turns that all steps take alternately: milliseconds of forward and
backward passes by tokens per batch, and of a step of fused AdamW, Muon and Surefoot, whose price does not depend on
them. Surefoot measures norms in every fifth step, so that its time is that of five steps over five. Operations (GFlop)
are counted by torch, with 1/3 and 2/3 of n³ for a Cholesky factor and the inverse from it; elementwise ones are left
out. ``--quick`` leaves out the batches of more than 2,048 tokens.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

import surefoot.optim as sfo
from _timing import Turns
from surefoot.problems.networks import CharacterTransformer

NETWORKS = {
    "10.7 M": ({"d": 384, "context": 256, "layers": 6, "heads": 6}, (512, 2048, 8192)),
    "0.8 M": ({"d": 128, "context": 64, "layers": 4, "heads": 4}, (768, 2048, 8192)),
}
"""Sizes of the networks, and tokens per batch."""
RECORDED = Path(__file__).with_suffix(".csv")
COLUMNS = ("parameters", "what", "tokens", "ms", "gflop")
RATE = 1e-9
TURNS = 5


def passes(net: CharacterTransformer, tokens: int) -> Callable[[], Any]:
    """A forward and a backward pass."""
    rows = torch.randint(65, (tokens // net.context, net.context + 1))

    def run() -> None:
        net.zero_grad()
        torch.nn.functional.cross_entropy(net(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten()).backward()

    return run


def optimizers(net: CharacterTransformer) -> dict[str, Callable[[], Any]]:
    """A step of each optimizer on the gradients that are there; of Surefoot as many as make up a round."""
    loss = torch.tensor(4.0)
    adamw = torch.optim.AdamW(net.parameters(), RATE, fused=True)
    muon = sfo.Muon(sfo.split(net), RATE, listen=False)
    surefoot = sfo.Surefoot(sfo.split(net), cap=RATE, listen=False)

    def round_of_surefoot() -> None:
        for _ in range(TURNS):
            surefoot.step(loss=loss)

    return {"AdamW": adamw.step, "Muon": lambda: muon.step(loss=loss), "Surefoot": round_of_surefoot}


def gflop(run: Callable[[], Any]) -> float:
    """Operations of products, Cholesky factors and their inverses."""
    factors = {
        torch.ops.aten.linalg_cholesky_ex: lambda shape, *_, **__: cubes(shape) // 3,
        torch.ops.aten.cholesky_inverse: lambda shape, *_, **__: 2 * cubes(shape) // 3,
    }
    with FlopCounterMode(display=False, custom_mapping=factors) as counter:
        run()
    return 1e-9 * counter.get_total_flops()


def cubes(shape: Iterable[int]) -> int:
    """n³ of every n × n matrix of a stack."""
    *stack, rows, columns = shape
    return int(torch.Size(stack).numel()) * rows * columns * columns


def measure(parameters: str, *, quick: bool) -> list[tuple[Any, ...]]:
    sizes, lengths = NETWORKS[parameters]
    torch.manual_seed(0)
    net = CharacterTransformer(65, **sizes)
    batches = {tokens: passes(net, tokens) for tokens in lengths if not quick or tokens <= 2048}
    batches[lengths[0]]()
    steps = optimizers(net)
    turns = Turns(time.thread_time)
    rows: list[tuple[Any, ...]] = []
    for tokens, run in batches.items():
        seconds = turns.best({"": run}, max(2, 4096 // tokens))[""]
        rows.append((parameters, "forward + backward", tokens, 1e3 * seconds, gflop(run)))
    batches[lengths[0]]()
    seconds_of = turns.best(steps, 5)
    for name, run in steps.items():
        share = 1 / TURNS if name == "Surefoot" else 1
        rows.append((parameters, name, "", 1e3 * share * seconds_of[name], share * gflop(run)))
    return rows


def show(rows: list[list[str]]) -> None:
    """The table: a row per batch size and optimizer, for each network."""
    print("| parameters | what | ms | GFlop |\n|---|---|---|---|")
    for parameters, what, tokens, milliseconds, operations in rows:
        named = f"forward and backward pass, {int(tokens):,} tokens" if tokens else f"step of {what}"
        counted = operations if float(operations) else "–"
        print(f"| {parameters} | {named} | {milliseconds} | {counted} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="no batch of more than 2,048 tokens, not recorded")
    parser.add_argument("--recorded", action="store_true", help="time nothing, print what is recorded")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.recorded:
        with RECORDED.open(newline="", encoding="utf-8") as file:
            show(list(csv.reader(file))[1:])
        return
    rows = []
    for parameters in NETWORKS:
        for *labels, milliseconds, operations in measure(parameters, quick=arguments.quick):
            rows.append([*map(str, labels), f"{milliseconds:.1f}", f"{operations:.2f}"])
    show(rows)
    if not arguments.quick:
        with RECORDED.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows])


if __name__ == "__main__":
    main()
