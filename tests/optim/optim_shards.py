"""What the processes of the tests on sharded parameters run; a module of its own, so that they can import it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
import torch.distributed as distributed
import torch.distributed.checkpoint as checkpoint
from tests.optim.optim_problem import KINDS, RATES, make
from tests.processes import run_ranks
from torch import Tensor
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict

import surefoot.optim as sfo
from surefoot.optim._distributed import whole
from surefoot.theory import models

RANKS = 2
BATCH = 8
STEPS = 6


class Heaviest(sfo.Geometry):
    """A geometry that is no sum over elements, and remembers: the maximum norm, scaled by its own past."""

    buffer_names: ClassVar[tuple[str, ...]] = ("past",)

    def observe(self, gradient: Tensor, buffers: Sequence[Tensor], count: Any) -> None:
        buffers[0].copy_(0.5 * buffers[0] + gradient.abs().max())

    def direction(self, gradient: Tensor, buffers: Sequence[Tensor], count: Any) -> Tensor:
        return gradient.abs().sum() * gradient.sign() / buffers[0].mean()


def heaviest(params: Any, **options: Any) -> sfo.ModelBased:
    return sfo.ModelBased(params, 0.02, model=models.Truncated(), geometry=Heaviest(), **options)


class Case(NamedTuple):
    """An optimizer, and how its parameters are laid out over the ranks."""

    name: str
    options: dict[str, Any] = {}  # noqa: RUF012
    layout: str = "fsdp"
    """``fsdp`` or ``mixed``: all layers sharded, or only the first. With four ranks ``hybrid``: two copies of two
    shards each, or ``tensor-parallel``: two shards of two parts of each layer."""
    groups: bool = False
    compiled: bool = False
    """On the ranks."""

    @property
    def id(self) -> str:
        words = [self.name, *(f"{key}={value}" for key, value in self.options.items()), self.layout]
        flags = {"groups": self.groups, "compiled": self.compiled}
        return "-".join(words + [name for name, on in flags.items() if on])

    def build(self, net: torch.nn.Module) -> Any:
        params: Any = list(net.parameters())
        lr = 0.2 * RATES.get(self.name, 0.1)
        if self.groups:
            params = [{"params": params[:3], "weight_decay": 0.02}, {"params": params[3:], "lr": 0.5 * lr}]
        if self.name == "Heaviest":
            return heaviest(params, **self.options)
        return make(self.name, params, lr=lr, **self.options)


SCHEDULE_FREE = {"momentum": sfo.ScheduleFree(0.9)}
CASES = [
    *(Case(name) for name in ("NGN", "MoMoAdam", "SPSMuon")),
    *(Case(name, layout="mixed", groups=True) for name in KINDS),
    *(Case(name, {"weight_decay": 0.1, "max_grad_norm": 0.5}) for name in ("SPS", "MoMo", "NGNAdam", "NGNMomentum")),
    *(Case("Surefoot", layout=layout, groups=True) for layout in ("fsdp", "mixed")),
    *(Case(name, {"lower_bound": "estimate"}) for name in ("MoMo", "NGNAdam")),
    *(Case("Heaviest", options, "mixed") for options in ({}, {"momentum": sfo.Linearisations(0.5)})),
    *(Case(name, SCHEDULE_FREE, "mixed", groups=True) for name in ("NGN", "SPSMuon")),
]
CHECKPOINTS = [
    *(Case(name, layout="mixed", groups=True) for name in ("NGN", "NGNMomentum", "MoMoAdam", "SPSMuon")),
    Case("NGN", SCHEDULE_FREE, "mixed", groups=True),
]
WIDE_CASES = [
    Case(name, layout=layout)
    for layout in ("hybrid", "tensor-parallel")
    for name in ("NGN", "MoMoAdam", "SPSMuon", "Heaviest")
] + [Case("MoMoAdam", layout="hybrid", compiled=True)]
"""On four ranks, two by two."""


def network(width: int = 7) -> torch.nn.Sequential:
    """Seven and one are odd: the shards are uneven, and rank 1 has nothing of the last layer."""
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, width), torch.nn.Tanh(), torch.nn.Linear(width, 1)).double()


def batch(index: int, rank: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(10 * index + rank)
    inputs = torch.randn((BATCH, 4), generator=generator, dtype=torch.float64)
    return inputs, torch.sin(inputs.sum(1, keepdim=True)) + 2.0


def joint_batch(index: int, ranks: int = RANKS) -> tuple[Tensor, Tensor]:
    first, second = zip(*(batch(index, rank) for rank in range(ranks)), strict=True)
    return torch.cat(first), torch.cat(second)


def train(
    net: torch.nn.Module,
    optimizer: sfo.ModelBased,
    steps: Iterable[int],
    data: Callable[[int], tuple[Tensor, Tensor]],
    before_step: Callable[[], None] = lambda: None,
) -> None:
    for index in steps:
        optimizer.zero_grad()
        inputs, targets = data(index)
        loss = (net(inputs) - targets).square().mean()
        loss.backward()
        before_step()
        if index % 2:
            optimizer.step(loss=loss)
        else:
            optimizer.step()  # it has heard the loss


def values(net: torch.nn.Module) -> list[Tensor]:
    """All parameters, gathered."""
    return [whole(p.detach()).clone() for p in net.parameters()]


def outcome(net: torch.nn.Module, optimizer: sfo.ModelBased) -> list[Tensor]:
    """What two runs that should be equal are compared by."""
    notes = [optimizer.last_step.size.reshape(-1)[:1], optimizer.last_step.delta, optimizer.last_grad_sq]
    return [
        *values(net),
        *(note.reshape(1) for note in notes),
        optimizer.last_step.size.reshape(-1),
    ]


def sharded(layout: str) -> tuple[torch.nn.Sequential, Callable[[], None]]:
    """The network in shards, and what is to be done between backward pass and step."""
    from torch.distributed.fsdp import fully_shard

    net = network()
    if layout == "fsdp":
        fully_shard(net)
        return net, lambda: None
    fully_shard(net[0])

    def average_the_rest() -> None:
        for p in net[2].parameters():
            assert p.grad is not None
            distributed.all_reduce(p.grad)
            p.grad /= RANKS

    return net, average_the_rest


def resumed(case: Case, rank: int, folder: Path | None) -> tuple[list[Tensor], list[Tensor]]:
    """An unbroken run, and one that went through a checkpoint: of shards in a folder, or of whole tensors in memory."""

    def start() -> tuple[torch.nn.Sequential, Any, Callable[[range], None]]:
        net, between = sharded(case.layout)
        optimizer = case.build(net)
        return net, optimizer, lambda steps: train(net, optimizer, steps, lambda index: batch(index, rank), between)

    net, optimizer, go_on = start()
    go_on(range(3))
    optimizer.zero_grad()
    options = StateDictOptions(full_state_dict=folder is None)
    states = copy.deepcopy(get_state_dict(net, optimizer, options=options))
    if folder is not None:
        checkpoint.save({"model": states[0], "optimizer": states[1]}, checkpoint_id=folder)
    go_on(range(3, STEPS))

    other, later, go_on = start()
    with torch.no_grad():
        for p in other.parameters():
            p.zero_()
    if folder is not None:
        states = get_state_dict(other, later)
        checkpoint.load({"model": states[0], "optimizer": states[1]}, checkpoint_id=folder)
    set_state_dict(other, later, model_state_dict=states[0], optim_state_dict=states[1], options=options)
    go_on(range(3, STEPS))
    return outcome(net, optimizer), outcome(other, later)


def spoiled(rank: int) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """Parameters before and after a step for which one rank had a NaN in its shard, and what was counted."""
    net, _ = sharded("fsdp")
    optimizer = Case("NGNAdam").build(net)
    train(net, optimizer, range(2), lambda index: batch(index, rank))
    before = outcome(net, optimizer)[:4]

    def spoil() -> None:
        if rank == 0:
            grad: Any = net[0].weight.grad
            grad.to_local()[0, 0] = torch.nan

    train(net, optimizer, [2], lambda index: batch(index, rank), spoil)
    return before, values(net), optimizer.skipped


def unsynchronised(rank: int) -> str:
    """What a step says to a loss of which a part was differentiated without synchronisation."""
    net, _ = sharded("fsdp")
    optimizer = Case("NGN").build(net)
    for is_last in (False, True):
        net.set_requires_gradient_sync(is_last)  # type: ignore[operator]
        inputs, targets = batch(0, rank)
        (net(inputs) - targets).square().mean().backward()
    try:
        optimizer.step()
    except ValueError as error:
        return str(error)
    return ""


def loss_in_pieces(rank: int) -> list[Tensor]:
    """A loss that is a DTensor itself, as tensor parallelism makes it; nothing else averages it here."""
    from torch.distributed.tensor import DTensor, Partial

    net, _ = sharded("fsdp")
    optimizer = Case("NGN", {"process_group": None}).build(net)
    for index in range(STEPS):
        optimizer.zero_grad()
        inputs, targets = batch(index, rank)
        loss = (net(inputs) - targets).square().mean()
        loss.backward()
        mesh = next(net.parameters()).device_mesh
        optimizer.step(loss=DTensor.from_local(loss.detach() / RANKS, mesh, [Partial()]))
    return outcome(net, optimizer)


def placed(rank: int) -> list[Tensor]:
    """Parameters split along another dimension, replicated ones, and a gradient that is still to be summed."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (1, RANKS))
    wholes = scattered_problem()
    placements = [(Replicate(), Shard(1)), (Shard(0), Shard(0)), (Replicate(), Replicate())]
    params = [
        torch.nn.Parameter(distribute_tensor(p, mesh, layout))
        for (p, _), layout in zip(wholes, placements, strict=True)
    ]
    optimizer = sfo.NGNAdam(params, lr=0.1)
    for p, (_, grad), layout in zip(params, wholes, placements, strict=True):
        p.grad = distribute_tensor(grad, mesh, layout)
    share = wholes[2][1] / RANKS
    params[2].grad = DTensor.from_local(share, mesh, [Replicate(), Partial()])
    optimizer.step(loss=2.0)
    return [whole(p.detach()) for p in params] + [optimizer.last_step.delta.reshape(1)]


def scattered_problem() -> list[tuple[Tensor, Tensor]]:
    """Parameters and their gradients."""
    generator = torch.Generator().manual_seed(5)
    shapes = ((3, 5), (3, 2), (4,))
    return [
        (torch.randn(shape, generator=generator).double(), torch.randn(shape, generator=generator).double())
        for shape in shapes
    ]


def refused() -> dict[str, str]:
    """The messages of parameters that cannot be moved."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.tensor import DTensor, Partial

    mesh = init_device_mesh("cpu", (RANKS,))
    partial = torch.nn.Parameter(DTensor.from_local(torch.ones(2), mesh, [Partial()]))
    flat = FullyShardedDataParallel(network(), device_id=torch.device("cpu"), use_orig_params=True)
    messages = {}
    for name, params in {"partial": [partial], "flat": list(flat.parameters())}.items():
        try:
            sfo.NGN(params)
        except TypeError as error:
            messages[name] = str(error)
    return messages


def worker(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    path = Path(folder)
    distributed.init_process_group("gloo", init_method=f"file://{path / 'rendezvous'}", rank=rank, world_size=RANKS)
    results: dict[str, Any] = {}
    for case in CASES:
        net, between = sharded(case.layout)
        optimizer = case.build(net)
        train(net, optimizer, range(STEPS), lambda index: batch(index, rank), between)
        results[case.id] = outcome(net, optimizer)
    for case in CHECKPOINTS:
        results[f"checkpoint {case.id}"] = resumed(case, rank, path / case.id)
        results[f"whole {case.id}"] = resumed(case, rank, None)
    results["spoiled"] = spoiled(rank)
    results["unsynchronised"] = unsynchronised(rank)
    results["loss"] = loss_in_pieces(rank)
    results["placed"] = placed(rank)
    results["refused"] = refused()
    torch.save(results, path / f"rank{rank}.pt")
    distributed.destroy_process_group()


def wide_worker(rank: int, folder: str) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    torch.set_num_threads(1)
    path = Path(folder)
    distributed.init_process_group("gloo", init_method=f"file://{path / 'rendezvous'}", rank=rank, world_size=4)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("outer", "inner"))
    results = {}
    for case in WIDE_CASES:
        if case.layout == "hybrid":
            net = network()
            fully_shard(net, mesh=mesh)
            data_rank = rank
        else:
            net = network(8)
            parallelize_module(net, mesh["inner"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
            fully_shard(net, mesh=mesh["outer"])
            data_rank = rank // 2
        optimizer = case.build(net)
        if case.compiled:
            optimizer.step = torch.compile(optimizer.step, backend="aot_eager")  # type: ignore[method-assign]
        train(net, optimizer, range(STEPS), lambda index, data_rank=data_rank: batch(index, data_rank))
        results[case.id] = outcome(net, optimizer)
    torch.save(results, path / f"rank{rank}.pt")
    distributed.destroy_process_group()


def run(folder: Path, target: Callable[[int, str], None] = worker, ranks: int = RANKS) -> list[dict[str, Any]]:
    run_ranks(target, (str(folder),), ranks)
    return [torch.load(folder / f"rank{rank}.pt", weights_only=True) for rank in range(ranks)]
