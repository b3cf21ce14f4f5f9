"""The single numbers that an optimizer keeps, by their names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from surefoot.optim._arithmetic import Arithmetic, Scalar

_OLD_COMMON = ("count", "skipped", "violations", "value", "bound", "delta", "grad_sq")


class NamedScalars:
    """Scalars with names: some for the optimizer, in its first parameter group, and some for every group.

    In the groups, and so in checkpoints, each has its name and is a 0-d tensor, except for the first, which has one
    dimension: in such a tensor torch's full checkpoints look for the device. All of them are elements of one vector,
    which a step reads and writes at once.
    """

    def __init__(
        self, groups: list[dict[str, Any]], common: Mapping[str, float], per_group: Mapping[str, float], like: Tensor
    ) -> None:
        self._names, self._width = tuple(common), len(per_group)
        places = [(groups[0], name, start) for name, start in common.items()]
        places += [(group, name, start) for group in groups for name, start in per_group.items()]
        self._vector = torch.stack([_held(group.get(name), start, like) for group, name, start in places])
        self._array: Any = None  # the same memory for NumPy, which is faster
        for (group, name, _), place in zip(places, self._vector.unbind(), strict=True):
            group[name] = place
        groups[0][self._names[0]] = groups[0][self._names[0]].view(1)

    def read(self, ops: Arithmetic) -> tuple[dict[str, Scalar], list[list[Scalar]]]:
        """The optimizer's scalars by name, and those of every group."""
        values = ops.read(self._place(ops))
        per_group = [values[i : i + self._width] for i in range(len(self._names), len(values), self._width)]
        return dict(zip(self._names, values, strict=False)), per_group

    def write(self, ops: Arithmetic, common: Mapping[str, Scalar], per_group: list[list[Scalar]]) -> None:
        """Write all scalars: the optimizer's by name, and those of every group in their order."""
        values = [common[name] for name in self._names]
        for of_group in per_group:
            values += of_group[: self._width]
        ops.write(self._place(ops), values)

    def _place(self, ops: Arithmetic) -> Any:
        if not ops.reads:
            return self._vector
        if self._array is None:
            self._array = self._vector.numpy()
        return self._array


def _held(value: Any, start: float, like: Tensor) -> Tensor:
    """The value that a group holds as a 0-d tensor, or the one that it starts with."""
    if isinstance(value, Tensor) and value.numel() == 1:
        return value.detach().reshape(()).to(like)
    return torch.tensor(value if isinstance(value, float) else start, dtype=like.dtype).to(like)


def name_old_vectors(
    groups: list[dict[str, Any]], *, common: tuple[str, ...] = _OLD_COMMON, per_group: tuple[str | None, ...] = ()
) -> None:
    """Give names to what a checkpoint of version 0.1.0 holds in the vectors ``progress`` and ``own`` of its groups."""
    for group in groups:
        for vector, names in (("progress", common), ("own", per_group)):
            values = group.pop(vector, None)
            if isinstance(values, Tensor):
                named = zip(names, values.reshape(-1).unbind(), strict=False)
                group.update({name: value for name, value in named if name is not None and name not in group})
