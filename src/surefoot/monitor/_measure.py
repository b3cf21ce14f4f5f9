"""What a monitor measures: numbers of every step, read from their device in blocks; of the step itself, on a sample.

What Adam, Muon or momentum did to the parameters cannot be known from rate and gradient; it takes the point before.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
import torch
import torch.distributed as distributed
from torch import Tensor
from torch.optim import Optimizer

from surefoot.rules import Floats

COLUMNS = (
    "loss",
    "rate",  # of the first parameter group
    "size",  # of the first parameter group
    "delta",  # of the optimizer's own model
    "grad_sq",  # from here on: of gradients
    "decrease",  # q = Σ_g α_g‖g_g‖²
    "slope",  # from here on: of a sample of the parameters. ⟨g, Δ⟩ with Δ = x_t − x_{t+1}
    "moved_sq",  # ‖Δ‖²
    "carried",  # ⟨g, Δ⟩ with the step before: the slope that is left at its end, on another batch
    "point_sq",  # ‖x_t‖²
    "away_sq",  # ‖x_t − x_1‖²
    "back",  # ⟨g, x_t − x_1⟩: above 0 where the way from the start leads uphill
)
OVERFLOW = "overflow"
"""What a row has beside the columns: above 0 if the scaled gradients have overflowed, so that no step was taken."""
LIMIT = 1 << 18
"""Elements of the sample, about (smaller networks are measured as a whole), and of a sum of squares in float32."""

Row = Mapping[str, Tensor | float]


class Records:
    """The rows of all steps. Tensors stay on their device until a block of rows is full, and are read together then.

    A full block is averaged over the process group, so that all ranks know equal numbers at equal steps. ∞ is what is
    not finite, NaN what was not measured.

    >>> records = Records(block=2, device=torch.device("cpu"), group=None)
    >>> [records.add({"loss": torch.tensor(1.0 / step)}) for step in (1, 2, 4)]
    [False, True, False]
    >>> records.columns()["loss"].tolist(), records.columns(complete=True)["loss"].tolist()
    ([1.0, 0.5, 0.25], [1.0, 0.5])
    """

    def __init__(self, block: int, device: torch.device, group: Any) -> None:
        self.block, self._device, self._group = block, device, group
        self._full: list[Floats] = []
        self._open: list[Row] = []
        self._lock = threading.Lock()  # the page of `surefoot watch` may be written by another thread

    def add(self, row: Row) -> bool:
        """Add a row; True if a block is full, so that the complete rows have grown."""
        with self._lock:
            self._open.append(row)
            if len(self._open) < self.block:
                return False
            self._full.append(self._averaged(_numbers(self._open)))
            self._open = []
            return True

    def columns(self, start: int = 0, *, complete: bool = False) -> dict[str, Floats]:
        """The columns by name, from a row on (-1 is the last): of complete blocks, which all ranks know alike, or all.

        Only blocks with rows from there on are read.
        """
        with self._lock:
            waiting = [] if complete else self._open
            begin = slice(start, None).indices(self.block * len(self._full) + len(waiting))[0]
            first = begin // self.block
            rows = np.concatenate([*self._full[first:], _numbers(waiting)])[begin - self.block * first :]
        return dict(zip(COLUMNS, rows.T, strict=True))

    def _averaged(self, rows: Floats) -> Floats:
        if self._group is None or not distributed.is_available() or not distributed.is_initialized():
            return rows
        group = None if self._group == "auto" else self._group
        total = torch.from_numpy(rows).to(self._device)  # NCCL adds up what is on its device only
        distributed.all_reduce(total, group=group)
        return np.asarray(total.cpu().numpy() / distributed.get_world_size(group))


def _numbers(rows: Sequence[Row]) -> Floats:
    """Rows as numbers; tensors are fetched from every device in one transfer."""
    table = np.full((len(rows), len(COLUMNS) + 1), np.nan)
    fetched: dict[torch.device, list[tuple[int, int, Tensor]]] = {}
    for line, row in enumerate(rows):
        for column, name in enumerate((*COLUMNS, OVERFLOW)):
            value = row.get(name)
            if isinstance(value, Tensor):
                fetched.setdefault(value.device, []).append((line, column, value))
            elif value is not None:
                table[line, column] = value if np.isfinite(value) else np.inf
    for device, found in fetched.items():
        lines, columns, tensors = zip(*found, strict=True)
        values = torch.stack([tensor.detach().reshape(()).to(_widest(device)) for tensor in tensors]).cpu().numpy()
        table[lines, columns] = np.where(np.isfinite(values), values, np.inf)
    table[table[:, -1] > 0, COLUMNS.index("grad_sq") : -1] = np.nan
    return table[:, :-1]


class StepSample:
    """Inner products of gradients and steps, on every k-th element of the parameters.

    It keeps four vectors at most: the start, the point, the way between them, and the last step. Numbers are 0-d
    tensors on the device of the parameters; nobody waits for them here.
    """

    def __init__(self) -> None:
        self._start: Tensor | None = None
        self._point: Tensor | None = None
        self._away: Tensor | None = None
        self._gradient: Tensor | None = None
        self._moved: Tensor | None = None
        self.elements = 0
        """The number of elements in the sample."""

    def before(self, params: Sequence[Tensor]) -> dict[str, Tensor]:
        """Measure the point before a step."""
        self._gradient = None
        self._point = point = _sampled(params)
        if self._start is None or self._start.shape != point.shape:  # the first step, or a group was added
            self._start, self._moved, self.elements = point, None, len(point)
        self._away = point - self._start
        return {"point_sq": point @ point, "away_sq": self._away @ self._away}

    def gradient(self, params: Sequence[Tensor], scale: Any) -> dict[str, Tensor]:
        """Measure the gradient at the point before a step, divided by ``scale`` if there is one."""
        gradients = (torch.zeros_like(p) if p.grad is None else p.grad for p in params)
        gradient = _sampled(grad if grad.layout is torch.strided else grad.to_dense() for grad in gradients)
        self._gradient = gradient = gradient if scale is None else gradient / scale
        measured = {"carried": self._moved, "back": self._away}
        self._moved = self._away = None
        return {name: gradient @ vector for name, vector in measured.items() if vector is not None}

    def after(self, params: Sequence[Tensor]) -> dict[str, Tensor]:
        """Measure the step that was taken; the next gradient is compared with it."""
        if self._point is None or self._gradient is None:
            return {}
        self._moved = moved = self._point - _sampled(params)
        values = {"slope": self._gradient @ moved, "moved_sq": moved @ moved}
        self._point = self._gradient = None
        return values

    def forget(self) -> None:
        """Drop everything but the start."""
        self._point = self._away = self._gradient = self._moved = None


def _sampled(tensors: Iterable[Any]) -> Tensor:
    """Every k-th element of all tensors in one vector; k is a prime, which no width of a layer is a multiple of.

    Of a DTensor it is the piece that this rank holds, which is a sample too.
    """
    local = (t.to_local() if hasattr(t, "device_mesh") else t for t in (tensor.detach() for tensor in tensors))
    pieces = [_real(tensor) for tensor in local]
    stride = max(1, -(-sum(piece.numel() for piece in pieces) // LIMIT))
    while any(stride % divisor == 0 for divisor in range(2, int(stride**0.5) + 1)):
        stride += 1
    device = pieces[0].device if pieces else torch.device("cpu")
    samples = [piece.reshape(-1)[::stride].to(device, _widest(device), non_blocking=True) for piece in pieces]
    return torch.cat(samples) if samples else torch.zeros(0, dtype=_widest(device))


def parameters(optimizer: Optimizer) -> list[Tensor]:
    """The parameters of all groups."""
    return [p for group in optimizer.param_groups for p in group["params"]]


def rates(optimizer: Optimizer) -> list[Tensor | float]:
    """The groups' rates; a tensor that is not on the CPU stays one, so that nobody waits."""
    lrs = [group["lr"] for group in optimizer.param_groups]
    return [lr.detach().clone() if isinstance(lr, Tensor) and not lr.is_cpu else float(lr) for lr in lrs]


def momentum(optimizer: Optimizer) -> float:
    """β of the running average of gradients, under the names that torch gives it; 0 if there is none."""
    group = optimizer.param_groups[0]
    beta = group["betas"][0] if "betas" in group else group.get("momentum", 0.0)
    return float(beta) if isinstance(beta, Real) and 0 <= float(beta) < 1 else 0.0


def squares(optimizer: Optimizer, device: torch.device) -> list[Tensor]:
    """‖g‖² of every group; a fused optimizer that ``GradScaler`` steps has gradients that are still scaled."""
    scale = getattr(optimizer, "grad_scale", None)
    found = []
    for group in optimizer.param_groups:
        flat = [_real(p.grad.detach()).reshape(-1) for p in group["params"] if p.grad is not None]
        pieces = [piece for grad in flat for piece in torch.split(grad, LIMIT)]
        norm = torch.nn.utils.get_total_norm([p.float() if p.dtype.itemsize < 4 else p for p in pieces])
        norm = norm.to(device, _widest(device))
        found.append((norm if scale is None else norm / scale).square())
    return found


def number(loss: Any) -> Tensor | float | None:
    """A copy of a loss, which may be changed before it is read; None if it is not one real number."""
    if isinstance(loss, Tensor):
        if loss.numel() != 1 or loss.is_complex():
            return None
        value: Tensor = loss.detach().reshape(())
        return value.float() if value.dtype.itemsize < 4 else value.clone()
    return float(loss) if isinstance(loss, Real) else None


def _real(tensor: Tensor) -> Tensor:
    """A tensor as a real one that shares its memory; of a sparse tensor, its values."""
    if tensor.layout is not torch.strided:
        tensor = tensor.coalesce().values()
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def _widest(device: torch.device) -> torch.dtype:
    """The widest floats that a device has: Apple's GPUs have no float64."""
    return torch.float32 if device.type == "mps" else torch.float64
