"""Models of the loss, the step that each of them takes, and its stability index.

A model-based method minimises a model of the batch loss plus a proximity term (eq. ``update`` of the paper),

    x⁺ = argmin_y  f_x(y) + ‖y − x‖² / (2α),        δ = f(x) − f_x(x⁺) − ‖x⁺ − x‖² / (2α).

Every model here sees the loss only through F = f − C, its height over a lower bound, and q = α‖g‖², the decrease that
the linear model promises. With z = q/F the step is x − t·α·g, and both t and δ/F are functions of z alone:

=============  ==========  =============================  =============================
model          method      t                              δ
=============  ==========  =============================  =============================
Linear         SGD         1                              q/2
Truncated      SPS         min(1, 1/z)                    t(1 − t/2) q
SquareRoot     NGN         1/(1 + z/2)                    t q/2
Exponential    LogNGN      e^(−w), w = W₀(z)              F (1 − e^(−w)(1 + w/2))
Power(p)       PowerStep   t = (1 − p z t)₊^(1/p − 1)     F (1 − t − (½ − p) z t²)
Composite      any φ, ψ    root of a scalar equation      eq. ``psi-phi-delta``
=============  ==========  =============================  =============================

``Power`` joins them: p = 1 is Truncated, p = ½ SquareRoot, p → 0 Exponential. The forms in the table lose their digits
for small z and overflow for large q; the code uses equal ones that do not.

Everything is elementwise, on Python floats and on arrays of NumPy, torch or JAX; it broadcasts, keeps the dtype, lets
gradients through, and never waits for a device. At the edges:

* a loss at or below its lower bound: ``size`` and ``delta`` are 0;
* a zero gradient: ``size`` is α and ``delta`` is 0; a zero rate: both are 0;
* lr = ∞ stands for the largest finite rate (``Truncated`` then takes the uncapped Polyak step);
* a loss or squared gradient that is NaN or infinite, a NaN rate or lower bound: ``size`` 0 and ``delta`` ∞, because
  divergence is a result and not a NaN;
* a negative rate or squared gradient raises ``ValueError`` where values can be looked at (Python floats, NumPy), and
  counts as NaN in torch and JAX.

>>> from surefoot.theory import models
>>> models.Truncated().step(loss=1.0, grad_sq=2.0, lr=3.0)
Step(size=0.5, delta=0.9166666666666666)
"""

from surefoot.theory.models._base import Model, Point, Step, exact_delta, safe_delta
from surefoot.theory.models._closed import Linear, SquareRoot, Truncated
from surefoot.theory.models._composite import Composite
from surefoot.theory.models._power import Exponential, Power

NAMED: dict[str, type[Model]] = {
    "sgd": Linear,
    "sps": Truncated,
    "ngn": SquareRoot,
    "log-ngn": Exponential,
    "power": Power,
}
"""What specs, traces and reports call the methods of these models."""

__all__ = [
    "NAMED", "Composite", "Exponential", "Linear", "Model", "Point", "Power", "SquareRoot", "Step", "Truncated",
    "exact_delta", "safe_delta",
]  # fmt: skip
