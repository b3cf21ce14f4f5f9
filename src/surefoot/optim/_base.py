"""The optimizer: torch's interface around the one algorithm."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from surefoot.optim._arithmetic import LARGE, Arithmetic, Device, Host, Scalar, scalar_dtype
from surefoot.optim._averaging import Averaging, Linearisations
from surefoot.optim._distributed import Joining, check_parameter, is_distributed, local, refuse_partition
from surefoot.optim._geometry import Euclidean, Geometry
from surefoot.optim._groups import Gathering, Share
from surefoot.optim._height import Height, Unbounded
from surefoot.optim._losses import Listening, Losses, check_closure, scalar
from surefoot.optim._settings import COMMON_OPTIONS, Settings, check_bound, check_rate
from surefoot.optim._skipped import SkippedSteps, raise_if_bad
from surefoot.optim._state import NamedScalars, name_old_vectors
from surefoot.optim._step import advance
from surefoot.theory.models import Model, Step


class ModelBased(Joining, Gathering, Listening):
    r"""Gradient descent whose step size comes from a model of the loss: model × geometry × averaging × height.

    With F = f − C (the batch loss over its lower bound), directions u_g and q = Σ_g α_g‖g_g‖²_* over the parameter
    groups, every group moves by

        x_g ← x_g − t·α_g·u_g

    where the one scale t ∈ [0, 1] and the stability index δ are those of the model at (F, q): see
    :mod:`surefoot.theory.models` for the table, and the paper's Section 4 for the derivations.

    Args:
        params: parameters or parameter groups; groups may have their own ``lr`` and ``weight_decay``.
        lr: the rate α, a number or a tensor of one element; changed by any scheduler of torch.
        model: a model of the loss, from :mod:`surefoot.theory.models`.
        geometry: :class:`Euclidean` (default), :class:`Diagonal` (Adam's metric), or a class of your own.
        beta: share of the past in the running average of linearisations (MoMo); 0 is no averaging.
        averaging: in place of ``beta``: :class:`Linearisations`, :class:`HeavyBall`, :class:`AveragedDirection`,
            :class:`ScheduleFree`, or a class of your own.
        weight_decay: λ, a number.
        weight_decay_mode: ``"decoupled"``: x ← (1 − tαλ)x before the step, which ignores it (t is the step's scale, so
            that decay and step keep their proportion); ``"prox"``: λ/2‖x‖² is part of the proximal problem (Linear,
            Truncated, SquareRoot), and δ is the index of f + λ/2‖·‖².
        lower_bound: the height that F is measured from: C, a number; ``"level"`` or :class:`Level`, which need no
            lower bound; ``"estimate"`` (MoMo's online rule) or :class:`Estimate`; or a :class:`Height` of your own.
        max_grad_norm: clip by scaling α with min{1, max_grad_norm/‖g‖}, where g is the gradient that the model sees.
            Gradients that were clipped by hand are recognised, and F is scaled with them, if the optimizer listens;
            averages of gradients (``beta``) need a number as ``lower_bound`` for that, so clip here with other heights.
        on_nonfinite: ``"skip"`` leaves parameters and averages untouched and counts, if loss or gradient are not finite
            or the loss is below C; ``"raise"`` raises ``ValueError`` then, for which it has to wait for the device.
        process_group: the loss is averaged over this group, so that every rank takes the same step; ``"auto"`` is the
            default group if there is one, None leaves the loss as it is. The norms of sharded parameters (FSDP2) are
            added up over their own mesh in any case.
        foreach: use torch's operations on lists (default) or loop over the parameters (False).
        fused: on CPU tensors, torch's fused Adam kernel for the :class:`Diagonal` geometry; needs scratch memory of the
            parameters' size. On other devices compile the step instead: ``torch.compile(opt.step)``.
        listen: hear the loss from ``loss.backward()``, so that ``step()`` needs none.
        maximize: the loss is an objective that should grow; ``lower_bound`` is then one of its negative.

    The groups hold β under torch's names, where schedulers such as ``OneCycleLR`` change it: ``momentum``, or ``betas``
    and ``eps`` in Adam's metric.

    The loss is heard from ``loss.backward()``, or handed to :meth:`step`, returned by its closure, or added beforehand
    by :meth:`add_loss`.

    >>> from surefoot.theory.models import SquareRoot
    >>> x = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
    >>> opt = ModelBased([x], lr=1.0, model=SquareRoot())
    >>> loss = 0.5 * x.square().sum()
    >>> loss.backward()
    >>> _ = opt.step()
    >>> x.detach(), opt.last_step.size.item()
    (tensor([1.5000, 2.0000]), 0.5)
    """

    _settings: Settings

    def __init__(
        self,
        params: Any,
        lr: float | Tensor,
        *,
        model: Model,
        geometry: Geometry | None = None,
        beta: float = 0.0,
        averaging: Averaging | None = None,
        weight_decay: float = 0.0,
        weight_decay_mode: str = "decoupled",
        lower_bound: float | str | Height = 0.0,
        max_grad_norm: float | None = None,
        on_nonfinite: str = "skip",
        process_group: Any = "auto",
        foreach: bool | None = None,
        fused: bool | None = None,
        listen: bool = True,
        maximize: bool = False,
    ) -> None:
        if averaging is not None and beta:
            raise ValueError(f"beta is part of averaging={averaging!r}; give one of the two, not beta={beta!r} as well")
        if fused and foreach:
            raise ValueError("fused=True and foreach=True exclude each other")
        self._settings = Settings(
            model=model,
            geometry=Euclidean() if geometry is None else geometry,
            given=Linearisations(beta) if averaging is None else averaging,
            height=lower_bound,  # type: ignore[arg-type]
            weight_decay_mode=weight_decay_mode,
            max_grad_norm=max_grad_norm,
            on_nonfinite=on_nonfinite,
            process_group=process_group,
            foreach=foreach is not False,
            fused=bool(fused),
            listen=bool(listen),
            maximize=bool(maximize),
        )
        refuse_partition()
        self._losses = Losses(self, listen=listen)
        self._skipped_steps = SkippedSteps()
        self._scratch: dict[Tensor, Tensor] = {}
        rates = {"lr": check_rate("lr", lr), "weight_decay": check_rate("weight_decay", weight_decay)}
        super().__init__(params, rates | self._settings.group_options)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group with its own ``lr`` and ``weight_decay``, and in Adam's metric ``betas[1]`` and ``eps``."""
        for name in param_group:
            if name in COMMON_OPTIONS and name not in self._settings.group_options:
                raise ValueError(
                    f"{name} is the same for all parameter groups: give it to {type(self).__name__}, not to a group "
                    f"(got {param_group[name]!r})"
                )
        for name in ("lr", "weight_decay"):
            if name in param_group:
                param_group[name] = check_rate(name, param_group[name])
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        try:
            for p in group["params"]:
                check_parameter(p)
            for geometry, params in self._settings.geometry.split(group["params"], group):
                if not geometry.holds_half and any(p.dtype is torch.float16 for p in params):
                    raise TypeError(
                        f"parameters in the {type(geometry).__name__} geometry must not be float16, whose range its "
                        "second moments leave: keep them in float32 under autocast, or use bfloat16"
                    )
        except (TypeError, ValueError):
            self.param_groups.pop()
            raise
        self._complete()

    def _complete(self) -> None:
        """Give every group the numbers that it lacks: a new group, or one from a checkpoint of an older version."""
        params = [p for group in self.param_groups for p in group["params"]]
        self._sharded = any(is_distributed(p) for p in params)
        self._large = any(p.numel() > LARGE for p in params)
        averaging = self._settings.averaging
        for group in self.param_groups:
            for name, value in {"weight_decay": 0.0, **self._settings.group_options}.items():
                group.setdefault(name, value)
                if isinstance(group[name], list):  # betas, from a checkpoint that knows no tuples
                    group[name] = tuple(group[name])
            if averaging.compares:
                group.setdefault("cap", float(group["lr"]))
            if averaging.evaluates_elsewhere:
                group.setdefault("train_mode", self.param_groups[0].get("train_mode", True))
        name_old_vectors(self.param_groups, per_group=("size", averaging.memory_name))
        common = dict.fromkeys(("count", "skipped", "violations", "delta", "grad_sq", *averaging.names), 0.0)
        per_group = {"size": 0.0} | ({} if averaging.memory_name is None else {averaging.memory_name: 0.0})
        device = next((p.device for p in params), torch.device("cpu"))  # scalars live with the first parameter
        like = torch.empty((), dtype=scalar_dtype(device), device=device)
        self._scalars = NamedScalars(self.param_groups, common | self._settings.height.start(), per_group, like)
        self.param_groups[0]["settings"] = self._settings.described
        self._momentum_name = next(iter(self._settings.group_options), None)
        self._followed: list[Any] | None = None

    def _follow(self) -> None:
        """Take over the momentum that a scheduler or a checkpoint has put into the groups."""
        name = self._momentum_name
        if name is None or self._settings.momentum is None:
            return
        now = [group[name] for group in self.param_groups]
        if now == self._followed:
            return
        betas = [value[0] if name == "betas" else value for value in now]
        if any(beta != betas[0] for beta in betas):
            raise ValueError(f"{name} must be the same in all parameter groups, for one loss is averaged; got {now}")
        if betas[0] != self._settings.momentum.beta:
            before = self._settings.averaging
            self._settings = self._settings.with_beta(betas[0])
            averaging = self._settings.averaging
            if (averaging.names, averaging.memory_name) != (before.names, before.memory_name):
                self._complete()
                if "since" in averaging.names:
                    self.param_groups[0]["since"].copy_(self.param_groups[0]["count"].squeeze())
                if averaging.memory_name is not None:
                    for group in self.param_groups:
                        group[averaging.memory_name].zero_()  # of momentum that was switched off before
        self._followed = now

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a state; where its settings differ from this optimizer's, it wins, and a warning says so."""
        constructed = self._settings
        super().load_state_dict({"state": {}, **state_dict})  # torch's full checkpoints leave out what is empty
        if self._known:
            self._settings = self._settings.as_described(self._known)
            first = self.param_groups[0]
            scheduled = "max_momentum" in first
            options = {} if scheduled else {name: first[name] for name in constructed.group_options}
            changes = constructed.differences(self._settings, self._known, options)
            if changes:
                warnings.warn(f"the settings of a {type(self).__name__} and its checkpoint: {changes}", stacklevel=2)
            self._complete()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_settings": self._settings, "_scratch": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._scratch = {}
        if "_losses" not in self.__dict__:  # a copy; load_state_dict comes here too
            self._losses, self._skipped_steps = Losses(self, listen=self._settings.listen), SkippedSteps()
        self._known = dict(self.param_groups[0].get("settings", {}))
        self._settings = self._settings.resumed(self.param_groups[0], self.state.values())
        self._complete()

    @property
    def last_step(self) -> Step:
        """The last step: ``size`` (t·α; one entry a group, in their order, if the rates differ) and ``delta``.

        Both are copies, on the parameters' device. A group without any gradient has the size that its step would have
        had. A step that was skipped has size 0, and δ = ∞ if loss or gradient were not finite.
        """
        lrs = [group["lr"] for group in self.param_groups]
        same = all(lr is lrs[0] or (not isinstance(lr, Tensor) and lr == lrs[0]) for lr in lrs)
        sizes = [group["size"] for group in self.param_groups]
        return Step(sizes[0].clone() if same else torch.stack(sizes), self._noted("delta"))

    @property
    def last_grad_sq(self) -> Tensor:
        """‖g‖² of the last step's gradient over all groups, before averaging and clipping: a copy, as ``last_step``."""
        return self._noted("grad_sq")

    @property
    def skipped(self) -> Tensor:
        """How many steps were skipped because the loss or the gradient was not finite."""
        return self._noted("skipped")

    @property
    def violations(self) -> Tensor:
        """How often the loss was below its lower bound (such a step is skipped, or an estimated bound lowered)."""
        return self._noted("violations")

    @property
    def lower_bound(self) -> Tensor:
        """The lower bound of the last step; the current estimate if it is estimated."""
        return self._noted("bound")

    @property
    def geometry(self) -> Geometry:
        """The geometry of the steps."""
        return self._settings.geometry

    @property
    def height(self) -> Height:
        """Where the loss is measured from."""
        return self._settings.height

    @property
    def maximize(self) -> bool:
        """Whether the loss should grow."""
        return self._settings.maximize

    @property
    def certifies(self) -> bool:
        """Whether δ may stand in a bound: no averaging, clipping, weight decay or estimated bound, Euclidean steps."""
        return self._settings.certifies and not any(group["weight_decay"] for group in self.param_groups)

    def _noted(self, name: str) -> Tensor:
        noted: Tensor = self.param_groups[0][name]
        return noted.clone()

    def reset_level(self) -> None:
        """Forget what a :class:`Level` (or another height) has learned of the losses, and :class:`AgreedDirection` of
        how batches agree: for new data, or a new phase."""
        averaging = self._settings.averaging
        compared = dict.fromkeys(averaging.names if averaging.compares else (), 0.0)
        for name, value in {**self._settings.height.start(), **compared}.items():
            self.param_groups[0][name].fill_(value)

    @torch.no_grad()
    def train(self) -> None:
        """Before training: with :class:`ScheduleFree` averaging, bring back the point where gradients are taken."""
        self._switch(train=True)

    @torch.no_grad()
    def eval(self) -> None:
        """Before evaluating or saving the network: with :class:`ScheduleFree` averaging, put its average in place."""
        self._switch(train=False)

    def _switch(self, *, train: bool) -> None:
        averaging = self._settings.averaging
        for group in self.param_groups:
            if group.get("train_mode", train) is train:
                continue
            group["train_mode"] = train
            for p in group["params"]:
                if averaging.buffer_name in self.state.get(p, ()):
                    averaging.switch(local(p.detach()), local(self.state[p][averaging.buffer_name]), train)

    @torch.no_grad()
    def step(
        self,
        closure: Callable[[], Any] | None = None,
        *,
        loss: Tensor | float | None = None,
        lower_bound: Tensor | float | None = None,
    ) -> Any:
        """Take a step with the loss of this batch: the one that ``loss.backward()`` was called on.

        The optimizer has heard it (:mod:`surefoot.optim._losses`). A loss that is handed over wins: as ``loss=``, from
        the closure, or by :meth:`add_loss` beforehand.

        Args:
            closure: computes the loss and its gradients, and returns the loss; with None in its place, the loss is one
                of the others.
            loss: the loss whose gradients are in place; it is not differentiated.
            lower_bound: the lower bound of this batch's loss, in place of the constructor's or the estimated one.

        Returns the loss. Without any loss it is an error, unless every rate is 0: then the state is created and nothing
        else happens, which distributed checkpointing relies on.
        """
        check_closure(closure, ": a loss is handed over as step(loss=loss)")
        if self._settings.averaging.evaluates_elsewhere and not all(g["train_mode"] for g in self.param_groups):
            raise RuntimeError("the parameters hold the average for evaluation: call train() before step()")
        self._follow()
        bound = self._bound_of_step(lower_bound)
        returned, value = self._loss_of_step(closure, loss)
        if value is None and not all(float(group["lr"]) == 0.0 for group in self.param_groups):
            why = self._losses.doubt or "it has heard none, from no loss.backward()"
            raise ValueError(
                f"{type(self).__name__}.step needs the loss ({why}): step(loss=loss), step(closure), or "
                "add_loss(loss) before"
            )
        ops = self._arithmetic()
        shares = self._shares(ops)
        if value is None:
            return None
        shrunk = ops.scalar(self._losses.shrunk(value))
        self._losses.forget()
        self._advance(ops, shares, -value if self._settings.maximize else value, bound, shrunk)
        return value if returned is None else returned

    def _advance(self, ops: Arithmetic, shares: list[Share], value: Tensor | float, bound: Any, shrunk: Scalar) -> None:
        """Run the algorithm, if any parameter has a gradient, and write down what it says."""
        settings, active = self._settings, [share for share in shares if share.params]
        if not active:
            self._skipped_steps.look_at_nothing(type(self).__name__)
            return
        loss, bound = self.agree(ops.scalar(value), None if bound is None else ops.scalar(bound))
        firm = settings.height.firm if bound is None else bound
        if settings.averaging.sees_average:  # averages of cg are those of the loss C + c(f − C)
            loss, shrunk = loss if firm is None else firm + shrunk * (loss - firm), 1.0
        past, per_group = self._scalars.read(ops)
        outcome = advance(settings, ops, active, loss, bound, past, shrunk)
        if settings.on_nonfinite == "raise":
            raise_if_bad(outcome, loss, firm)
        for share in [share for share in shares if not share.params]:  # of groups without a gradient
            per_group[share.group][0] = outcome.scales[0] * share.lr
        for share, scale, memory in zip(active, outcome.scales, outcome.memories, strict=True):
            per_group[share.group] = [scale * share.lr, memory]
        self._scalars.write(ops, outcome.noted, per_group)
        self._skipped_steps.look(ops, type(self).__name__, outcome, loss, firm)

    def _bound_of_step(self, lower_bound: Tensor | float | None) -> Tensor | float | None:
        if lower_bound is None:
            return None
        if isinstance(self._settings.height, Unbounded):
            raise ValueError(f"lower_bound of a single step does not go with the linear model, got {lower_bound!r}")
        if isinstance(lower_bound, Tensor):
            bound = scalar(lower_bound, "lower_bound")
            if torch.compiler.is_compiling() or not lower_bound.is_cpu:
                return bound  # reading it would break the graph, or wait for the device
            lower_bound = float(bound)
        return check_bound(lower_bound)

    def _arithmetic(self) -> Arithmetic:
        # One look at each group: if other devices hide behind its first parameter, Host is slower there, not wrong.
        groups = self.param_groups
        if not torch.compiler.is_compiling() and all(g["params"][0].is_cpu for g in groups if g["params"]):
            for group in groups:
                if type(group["lr"]) is not float or not 0.0 <= group["lr"] < math.inf:
                    check_rate("lr", group["lr"])
            return Host(self._settings.foreach, self._large)
        first: Tensor = groups[0]["count"]
        return Device(self._settings.foreach, first.device, first.dtype)
