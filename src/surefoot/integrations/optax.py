"""The step sizes of the paper as optax transformations; the loss goes into ``update`` as ``value=``.

===============  ===========  ===================================
transformation   model        as in torch
===============  ===========  ===================================
``sgd``          Linear       :class:`surefoot.optim.SGD`
``sps``          Truncated    :class:`surefoot.optim.SPS`
``ngn``          SquareRoot   :class:`surefoot.optim.NGN`
``log_ngn``      Exponential  :class:`surefoot.optim.LogNGN`
``power_step``   Power(p)     ``ModelBased(…, model=Power(p))``
===============  ===========  ===================================

Each turns a gradient g into the update −size·g, and keeps size and stability index δ of the step in its state, a
:class:`StepState`. They work in ``optax.chain``, under ``jit``, ``vmap`` and ``scan``, and with
``optax.inject_hyperparams``. What stands before them in a chain must not scale the gradient: ‖g‖² and the loss belong
together. ``optax.MultiSteps`` would pass on the last loss of its micro batches only: take :func:`multi_steps`.

``learning_rate`` is the rate α: a number, a 0-d array, or a schedule of optax. ``lower_bound`` is C: a number, a 0-d
array, or ``"level"`` or :class:`Level` where none is known. A loss or gradient that is not finite, or a loss below C,
gives updates of zero and is counted. Squares are summed in float32 or better, whatever the gradients' dtype.

>>> import jax.numpy as jnp
>>> optimizer = ngn(1.0)
>>> x = jnp.array(2.0)
>>> update, state = optimizer.update(x, optimizer.init(x), value=0.5 * x**2)
>>> update.item(), state.size.item()
(-1.0, 0.5)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Real
from typing import Any, NamedTuple

import numpy as np

from surefoot._base.missing import missing
from surefoot.theory import level
from surefoot.theory.models import Exponential, Linear, Model, Power, SquareRoot, Truncated

try:
    import jax
    import jax.numpy as jnp
    import optax  # type: ignore[import-untyped, unused-ignore]
except ImportError as error:
    raise missing(__name__, error, "jax") from error

Rate = Any
"""A number, a 0-d array, or a function from the count of updates to the rate."""

Level = level.Rule
"""A level in place of a lower bound, ``sps(lower_bound=Level(share=0.3))``, with the steps of ``sfo.Level``."""


class StepState(NamedTuple):
    """The last step, and counts; ``optax.tree_utils.tree_get(state, "delta")`` finds it in a chain.

    All are of shape (); ``size`` and ``delta`` are float32, or float64 if a parameter is, the counts int32.
    """

    count: jax.Array  # type: ignore[assignment]
    """Updates so far."""
    size: jax.Array
    """Multiplier of the last gradient."""
    delta: jax.Array
    """Stability index δ of the last step, ∞ if loss or gradient were not finite."""
    skipped: jax.Array
    """How often loss or gradient were not finite."""
    violations: jax.Array
    """How often the loss was below its lower bound."""
    level: Any = ()
    """What a level remembers, :class:`surefoot.theory.level.Seen`; empty for a number."""


def sgd(learning_rate: Rate = 0.1) -> optax.GradientTransformationExtraArgs:
    """Gradient descent, the linear model: size = α, δ = ½α‖g‖² (Sec. 4.1).

    It moves as ``optax.sgd`` and needs the loss only to see whether it is finite.
    """
    return _transformation("sgd", lambda _: Linear(), learning_rate, 0.0)


def sps(learning_rate: Rate = 1.0, *, lower_bound: Any = 0.0) -> optax.GradientTransformationExtraArgs:
    """The stochastic Polyak step size, the truncated model: size = min{α, (f − C)/‖g‖²} (Lemma 4.1)."""
    return _transformation("sps", Truncated, learning_rate, lower_bound)


def ngn(learning_rate: Rate = 1.0, *, lower_bound: Any = 0.0) -> optax.GradientTransformationExtraArgs:
    """Non-negative Gauss–Newton, the square root model: size = α/(1 + α‖g‖²/(2(f − C))) (Lemma 4.2)."""
    return _transformation("ngn", SquareRoot, learning_rate, lower_bound)


def log_ngn(learning_rate: Rate = 1.0, *, lower_bound: Any = 0.0) -> optax.GradientTransformationExtraArgs:
    """The exponential model, the paper's Lambert-W step: size = ((f − C)/‖g‖²)·W₀(α‖g‖²/(f − C)) (App. D).

    Its step grows without limit in α: it is not safe at any rate.
    """
    return _transformation("log_ngn", Exponential, learning_rate, lower_bound)


def power_step(
    learning_rate: Rate = 1.0, *, p: float = 0.75, lower_bound: Any = 0.0
) -> optax.GradientTransformationExtraArgs:
    """The power family: p = 1 is SPS, ½ NGN, 0 LogNGN; only p ≥ ½ stays within twice Polyak's step.

    The exponent ``p`` is a number of at most 1; under ``optax.inject_hyperparams`` it is one of its ``static_args``.
    """
    Power(p)  # refuses what is no exponent
    return _transformation("power_step", lambda bound: Power(p, bound), learning_rate, lower_bound)


def multi_steps(
    optimizer: optax.GradientTransformation, every_k_schedule: int | Callable[[Any], Any], **options: Any
) -> optax.GradientTransformationExtraArgs:
    """Gradient accumulation, ``optax.MultiSteps``, that averages the losses of the micro batches like their gradients.

    Args:
        optimizer: a transformation of this module, or a chain with one; any other works too.
        every_k_schedule: micro batches per step, or a function from the count of steps to that.
        **options: other arguments of ``optax.MultiSteps``.

    >>> import jax.numpy as jnp
    >>> optimizer = multi_steps(sps(100.0), 2)
    >>> x = jnp.array(2.0)
    >>> state = optimizer.init(x)
    >>> for value in (1.0, 3.0):                               # the mean is 2, the step 2/2²
    ...     update, state = optimizer.update(x, state, x, value=value)
    >>> update.item()
    -1.0
    """
    inner = optax.with_extra_args_support(optimizer)

    def update_both(updates: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        gradients, loss = updates
        moves, state = inner.update(gradients, state, None if params is None else params[0], value=loss, **extra)
        return (moves, jnp.zeros_like(loss)), state

    both = optax.GradientTransformationExtraArgs(lambda params: inner.init(params[0]), update_both)
    steps = optax.MultiSteps(both, every_k_schedule, **options)

    def init(params: Any) -> Any:
        return steps.init((params, jnp.zeros((), _dtype(params))))

    def update(updates: Any, state: Any, params: Any = None, *, value: Any = None, **extra: Any) -> tuple[Any, Any]:
        loss = _loss("multi_steps", value).astype(_dtype(updates))
        (moves, _), state = steps.update((updates, loss), state, None if params is None else (params, loss), **extra)
        return moves, state

    return optax.GradientTransformationExtraArgs(init, update)


def _transformation(
    name: str, make: Callable[[Any], Model], learning_rate: Rate, lower_bound: Any
) -> optax.GradientTransformationExtraArgs:
    """The transformation of a model, given as a function of the lower bound."""
    if not callable(learning_rate):
        _check("learning_rate", learning_rate, "a number or a schedule", least=0.0)
    rule = Level() if isinstance(lower_bound, str) and lower_bound == "level" else lower_bound
    if not isinstance(rule, Level):
        _check("lower_bound", rule, 'a number, "level" or a Level')

    def init(params: Any) -> StepState:
        zero, no_steps = jnp.zeros((), _dtype(params)), jnp.zeros((), jnp.int32)
        seen = level.Seen(*(jnp.full((), value, zero.dtype) for value in level.Seen()))
        return StepState(no_steps, zero, zero, no_steps, no_steps, seen if isinstance(rule, Level) else ())

    def update(
        updates: Any, state: StepState, params: Any = None, *, value: Any = None, **extra: Any
    ) -> tuple[Any, StepState]:
        dtype = state.delta.dtype
        loss = _loss(name, value).astype(dtype)
        rate = jnp.asarray(learning_rate(state.count) if callable(learning_rate) else learning_rate, dtype)
        squares = (jnp.sum(jnp.square(g.astype(dtype))) for g in jax.tree.leaves(updates))
        grad_sq = sum(squares, start=jnp.zeros((), dtype))
        finite = jnp.isfinite(loss) & jnp.isfinite(grad_sq)
        seen: Any = ()
        if isinstance(rule, Level):
            decrease = rate * grad_sq
            seen, (scale, delta) = level.step(make(0.0), rule, state.level, loss, decrease)
            size = jnp.where(finite, rate * scale, 0.0)
            below = jnp.zeros((), bool)
        else:
            model = make(jnp.asarray(rule, dtype))
            size, delta = model.step(loss, grad_sq, rate)
            below = finite & (loss < model.lower_bound)
        # Not −size·g alone: for a skipped step g may be NaN, and 0·NaN is NaN.
        moves = jax.tree.map(lambda g: jnp.where(finite, -size * g.astype(dtype), 0.0).astype(g.dtype), updates)
        count = optax.safe_int32_increment(state.count)
        return moves, StepState(count, size, delta, state.skipped + ~finite, state.violations + below, seen)

    return optax.GradientTransformationExtraArgs(init, update)


def _check(name: str, value: Any, allowed: str, least: float = -math.inf) -> None:
    """Refuse what is neither a finite number nor a 0-d array; values of JAX arrays may be traced, and are not read."""
    if isinstance(value, jax.Array | np.ndarray) and value.shape != ():
        raise ValueError(f"{name} must be a number or an array of shape (), got one of shape {value.shape}")
    if isinstance(value, jax.Array):
        return
    number = value.item() if isinstance(value, np.ndarray) else value
    if isinstance(number, bool) or not isinstance(number, Real):
        raise TypeError(f"{name} must be {allowed}, got {number!r}")
    if not math.isfinite(number) or number < least:
        bound = "" if least == -math.inf else f" and at least {least:g}"
        raise ValueError(f"{name} must be finite{bound}, got {number!r}")


def _dtype(params: Any) -> Any:
    """The dtype of the scalars: float32, or float64 if a parameter is; parameters must be real."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        if not jnp.issubdtype(jnp.result_type(leaf), jnp.floating):
            place = jax.tree_util.keystr(path) or "the parameter"
            raise TypeError(f"parameters must be real floating-point arrays, got {jnp.result_type(leaf)} at {place}")
    return jnp.result_type(jnp.float32, *jax.tree.leaves(params))


def _loss(name: str, value: Any) -> jax.Array:
    """The loss as an array, if it is one real number."""
    if value is None:
        raise TypeError(f"{name} needs the loss: update(gradients, state, params, value=loss)")
    loss = jnp.asarray(value)
    if loss.shape != ():
        raise ValueError(f"value must be a number or an array of shape (), got one of shape {loss.shape}")
    if jnp.iscomplexobj(loss):
        raise TypeError(f"value must be real, got an array of dtype {loss.dtype}")
    return loss
