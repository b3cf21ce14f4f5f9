"""Several ranks that train one model: the loss that they agree on, and what a rank does that runs out of data."""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch.distributed as distributed

from surefoot.optim._arithmetic import Scalar
from surefoot.optim._scalars import mean_over_ranks, scalar_dtype
from surefoot.optim._settings import Settings

_ZERO = "torch.distributed.optim.zero_redundancy_optimizer"


def refuse_partition() -> None:
    """Refuse to be built by ``ZeroRedundancyOptimizer``: each rank would step by the norm of its own parameters."""
    if _ZERO not in sys.modules:
        return
    frame: Any = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") == _ZERO:
            raise TypeError(
                "optimizer_class must not be one of surefoot in a ZeroRedundancyOptimizer, which gives every rank a "
                "part of the parameters: the step needs the norm of all of them. Shard the model with "
                "torch.distributed.fsdp.fully_shard (FSDP2), and its optimizer is sharded too"
            )
        frame = frame.f_back


class Joining:
    """The ranks' agreement on the loss, as torch's ``Join`` wants it for uneven inputs: ``Join([model, optimizer])``.

    A rank that has run out of batches takes part with a loss of 0, as ``DistributedDataParallel`` does with its
    gradients, so that loss and gradient stay means over the same number of ranks.
    """

    _settings: Settings
    param_groups: list[dict[str, Any]]
    _join_config: Any = None

    def agree(self, loss: Scalar, bound: Scalar | None) -> tuple[Scalar, Scalar | None]:
        """Loss and lower bound as means over the process group."""
        if self._join_config is not None:
            from torch.distributed.algorithms.join import Join

            Join.notify_join_context(self)  # type: ignore[arg-type]
        loss, mean = mean_over_ranks(self._settings.process_group, loss, 0.0 * loss if bound is None else bound)
        return loss, None if bound is None else mean

    @property
    def join_device(self) -> torch.device:
        """Where the ranks talk about joining."""
        found: torch.device = self.param_groups[0]["count"].device
        return found

    @property
    def join_process_group(self) -> Any:
        """Who talks."""
        group = self._settings.process_group
        return distributed.group.WORLD if group is None or group == "auto" else group

    def join_hook(self, **options: Any) -> Any:
        """What a rank does that has run out of batches."""
        from torch.distributed.algorithms.join import JoinHook

        optimizer, device = self, self.join_device

        class Hook(JoinHook):
            def main_hook(self) -> None:
                nothing = torch.zeros((), dtype=scalar_dtype(device), device=device)
                group = optimizer._settings.process_group
                mean_over_ranks(group, *((0.0, 0.0) if device.type == "cpu" else (nothing, nothing)))

        return Hook()
