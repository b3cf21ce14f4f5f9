"""Speed of the optimizers against torch's, as ratios within one run, and kernels per step.

    python benchmarks/optim.py [--quick] [--threads 2]

Two sets of tensors: ResNet20's 59 (0.27 M parameters, kernels as matrices) and GPT-2 small's 148 (124 M). With
``--quick`` the second is a GPT-2 of 25 M and there are fewer repeats. Optimizers that are compared step on the same
parameters and gradients in turns, and a ratio is that of their shortest times. NGN, SPS, NGNMomentum and MoMo are
compared with ``torch.optim.SGD(fused=True)``, the Adam forms with ``torch.optim.AdamW(fused=True)``; Muon and Surefoot
with ``torch.optim.Muon`` on the matrices and fused AdamW on embeddings and vectors, which have Adam's metric in all
three. torch's Muon multiplies in bfloat16, which takes minutes per step where the processor has no instructions for it.
With one thread it is the time of the processor, so that other work on the machine matters little.

*Kernels* are the operations that a step dispatches on CPU tensors, views excluded, for ResNet20 and for two of it: what
launching costs on an accelerator. They do not depend on the machine.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import surefoot.optim as sfo
from _timing import Turns
from surefoot.problems import networks

Shapes = list[tuple[int, ...]]
Step = Callable[[], Any]
Factory = Callable[[list[torch.nn.Parameter]], Step]

RATE = 1e-9


def resnet20() -> Shapes:
    return [tuple(p.flatten(1).shape) if p.ndim > 1 else tuple(p.shape) for p in networks.ResNet20().parameters()]


def gpt2(layers: int, vocabulary: int) -> Shapes:
    shapes: Shapes = [(vocabulary, 768), (1024, 768)]
    for _ in range(layers):
        shapes += [(768,), (768,), (2304, 768), (2304,), (768, 768), (768,)]
        shapes += [(768,), (768,), (3072, 768), (3072,), (768, 3072), (768,)]
    return [*shapes, (768,), (768,)]


def is_matrix(p: torch.nn.Parameter) -> bool:
    """Whether Muon orthogonalises it: embeddings and vectors have Adam's metric."""
    return p.ndim == 2 and p.shape[0] not in (1024, 50257, 5000)


def ours(name: str) -> Factory:
    def make(params: list[torch.nn.Parameter]) -> Step:
        kind: Any = getattr(sfo, name)
        loss = torch.tensor(2.0)
        groups: Any = params
        if name in ("Muon", "Surefoot"):
            groups = [{"params": [p for p in params if is_matrix(p)]}]
            groups += [{"params": [p for p in params if not is_matrix(p)], "spectral": False}]
        optimizer = kind(groups, RATE, **({"cap": RATE} if name == "Surefoot" else {}))
        return lambda: optimizer.step(loss=loss)

    return make


def torch_muon(params: list[torch.nn.Parameter]) -> Step:
    matrices = torch.optim.Muon([p for p in params if is_matrix(p)], RATE)
    others = torch.optim.AdamW([p for p in params if not is_matrix(p)], RATE, fused=True)
    return lambda: (matrices.step(), others.step())


BASELINES: dict[str, tuple[Factory, tuple[str, ...]]] = {
    "torch SGD": (lambda params: torch.optim.SGD(params, RATE, fused=True).step, ("NGN", "SPS", "NGNMomentum", "MoMo")),
    "torch AdamW": (lambda params: torch.optim.AdamW(params, RATE, fused=True).step, ("NGNAdam", "NGNMomentumAdam")),
    "torch Muon": (torch_muon, ("Muon", "Surefoot")),
}
"""torch's optimizers, and which of ours are compared with them."""


class Kernels(TorchDispatchMode):
    """Counts the operations that are dispatched inside it, views excluded."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += not func.is_view
        return func(*args, **(kwargs or {}))


def tensors(shapes: Shapes) -> list[torch.nn.Parameter]:
    torch.manual_seed(0)
    params = [torch.nn.Parameter(0.02 * torch.randn(shape)) for shape in shapes]
    for p in params:
        p.grad = 1e-3 * torch.randn_like(p)
    return params


def kernels(params: list[torch.nn.Parameter], factory: Factory) -> int:
    """Operations of the third step: the first one creates the state."""
    step = factory(params)
    step(), step()
    with Kernels() as counted:
        step()
    return counted.count


def compare(title: str, shapes: Shapes, repeats: int, turns: Turns) -> None:
    params = tensors(shapes)
    print(f"\n{title}: {len(params)} tensors, {sum(p.numel() for p in params) / 1e6:.2f} M parameters\n")
    print("| optimizer | times | baseline |\n|---|---|---|")
    for baseline, (factory, names) in BASELINES.items():
        steps = {baseline: factory(params)} | {name: ours(name)(params) for name in names}
        times = turns.best(steps, max(1, repeats // 20) if baseline == "torch Muon" else repeats)
        for name in names:
            print(f"| {name} | {times[name] / times[baseline]:.2f} | {baseline} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="25 M parameters in place of 124 M, few repeats")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print("| optimizer | kernels per step, 59 tensors | 118 tensors |\n|---|---|---|")
    sizes = tensors(resnet20()), tensors(2 * resnet20())
    for baseline, (factory, names) in BASELINES.items():
        for name, each in {baseline: factory, **{name: ours(name) for name in names}}.items():
            counts = [kernels(params, each) for params in sizes]
            print(f"| {name} | {counts[0]} | {counts[1]} |", flush=True)
    turns = Turns(time.thread_time if arguments.threads == 1 else time.perf_counter)
    compare("ResNet20", resnet20(), 100 if arguments.quick else 400, turns)
    large = gpt2(3, 5000) if arguments.quick else gpt2(12, 50257)
    compare("GPT-2", large, 5 if arguments.quick else 15, turns)
    print(f"\n{turns}; threads: {arguments.threads}")


if __name__ == "__main__":
    main()
