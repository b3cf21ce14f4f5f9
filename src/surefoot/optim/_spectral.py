"""The spectral norm of matrices: Muon's geometry, in the regularised and in the ball-constrained form."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from surefoot.optim._geometry import Diagonal, Geometry
from surefoot.optim._tensors import wide

_FAST = (3.4445, -4.7750, 2.0315)
"""Coefficients of Jordan's quintic (2024): it lifts small singular values fast, and leaves all of them around 1."""
_FAST_NORM = 1.2024
"""An upper bound of Jordan's quintic on [0, 1.2024], so that no number of its steps leaves this interval."""
_POLISH = (15 / 8, -10 / 8, 3 / 8)
"""Coefficients of the quintic that converges: it is monotone, and of third order at 1."""
_CONSTANT, _POLES, _WEIGHTS = 0.69096, (6.8871e-6, 6.7346e-4, 0.053346), (4.5597e-3, 0.035981, 0.32759)
"""Zolotarev's rational function x(C + Σ w/(x² + p)): of all with three poles the closest to 1 on [0.002, 1]."""
_TINY = 1e-37
_LONG = 2
"""From this ratio of the sides on, Newton–Schulz takes fewer operations on the smaller Gram matrix."""
_ROWS = 64
"""Rows per block of a Gram matrix, of which half is computed."""
_SCALES = ("unit", "original", "match_rms_adamw")


def orthogonalise(matrix: Tensor, polish: int = 2) -> Tensor:
    """Newton–Schulz: nearly UVᵀ of the singular value decomposition UΣVᵀ, by products of matrices alone.

        X ← aX + b(XXᵀ)X + c(XXᵀ)²X,    from X = G/‖G‖

    Every step multiplies X by a polynomial of XXᵀ. For long matrices these polynomials are multiplied first, which
    takes products of the smaller side's size only. Singular values below about 0.01 of the Frobenius norm stay below
    1, as usual in Muon.

    Args:
        matrix: of two dimensions.
        polish: steps with a quintic that converges, after five with Jordan's coefficients, which bring most singular
            values into [0.68, 1.2]. Two leave an error of 1e-3 or less.

    >>> orthogonalise(torch.tensor([[3.0, 0.0], [0.0, -1.0]])).round(decimals=2)
    tensor([[ 1.,  0.],
            [ 0., -1.]])
    """
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.mT if tall else matrix
    x, _ = _normalised(x)
    coefficients = _quintics(polish)
    if x.shape[1] >= _LONG * x.shape[0]:
        x = _product_of_polynomials(x @ x.mT, coefficients) @ x
    else:
        for a, b, c in coefficients:
            gram = x @ x.mT
            x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


def _normalised(x: Tensor) -> tuple[Tensor, Tensor]:
    """Matrices over their Frobenius norms, and these norms; squares neither overflow nor vanish on the way."""
    tiny = max(_TINY, torch.finfo(x.dtype).tiny)
    largest = x.abs().amax((-2, -1), keepdim=True).clamp_min(tiny)
    x = x / largest
    norm = torch.linalg.vector_norm(x, dim=(-2, -1), keepdim=True).clamp_min(tiny)
    return x / norm, largest * norm


def _product_of_polynomials(gram: Tensor, coefficients: tuple[tuple[float, float, float], ...]) -> Tensor:
    """The matrix by which the steps multiply X with XXᵀ = ``gram``: Π (a + bA + cA²) with the A of every step."""
    product = _polynomial(gram, *coefficients[0])
    last = product
    for factors in coefficients[1:]:
        gram = last @ gram @ last
        last = _polynomial(gram, *factors)
        product = last @ product
    return product


def _polynomial(gram: Tensor, a: float, b: float, c: float) -> Tensor:
    """a + bA + cA²."""
    plus_product = torch.addmm if gram.ndim == 2 else torch.baddbmm
    value = plus_product(gram, gram, gram, beta=b, alpha=c)
    value.diagonal(dim1=-2, dim2=-1).add_(a)
    return value


def polar_factor(matrices: Tensor) -> Tensor:
    """Nearly UVᵀ as by :func:`orthogonalise` without polish, at a fraction of the price on the CPU: RX with X = G/‖G‖.

    Takes stacks of matrices. Singular values above 0.002 of the Frobenius norm become 1 ± 0.043 on the CPU, and lie in
    [0.68, 1.2] on devices. Smaller ones are lifted 450 times or more.

    >>> polar_factor(torch.tensor([[3.0, 0.0], [0.0, -1.0]])).round(decimals=2)
    tensor([[ 1.0200,  0.0000],
            [ 0.0000, -1.0200]])
    """
    x, _ = _normalised(matrices)
    if x.shape[-2] > x.shape[-1]:
        return x @ _inverse_root(_gram(x.mT))
    return _inverse_root(_gram(x)) @ x


def nuclear_norm(matrices: Tensor) -> Tensor:
    """⟨G, O⟩ with O = ``polar_factor(G)``, which is not computed: nearly the sum of the singular values of each matrix.

    >>> round(nuclear_norm(torch.tensor([[3.0, 0.0], [0.0, -1.0]])).item())
    4
    """
    x, norm = _normalised(matrices)
    gram = _gram(x.mT if x.shape[-2] > x.shape[-1] else x)
    return norm[..., 0, 0] * (_inverse_root(gram) * gram).sum((-2, -1))


def _gram(x: Tensor) -> Tensor:
    """XXᵀ: the blocks of rows of its lower half, which are then mirrored."""
    rows = x.shape[-2]
    if rows <= 2 * _ROWS:
        return x @ x.mT
    gram = x.new_zeros(*x.shape[:-1], rows)
    for end in range(_ROWS, rows + _ROWS, _ROWS):
        gram[..., end - _ROWS : end, :end] = x[..., end - _ROWS : end, :] @ x[..., :end, :].mT
    return gram.tril() + gram.tril(-1).mT


def _inverse_root(gram: Tensor) -> Tensor:
    """The symmetric R that turns X with XXᵀ = ``gram``, of norm 1, into nearly its orthogonal factor RX.

    On the CPU Zolotarev's C + Σ w(XXᵀ + p)⁻¹, whose three inverses take a fraction of the time of Newton–Schulz. On
    devices, where factorisations are slow, the polynomial of Newton–Schulz.
    """
    if not gram.is_cpu:
        return _product_of_polynomials(gram, _quintics(0))
    root = torch.zeros_like(gram)
    root.diagonal(dim1=-2, dim2=-1).add_(_CONSTANT)
    for pole, weight in zip(_POLES, _WEIGHTS, strict=True):
        shifted = gram.clone()
        shifted.diagonal(dim1=-2, dim2=-1).add_(pole)
        inverse = torch.cholesky_inverse(torch.linalg.cholesky_ex(shifted)[0])
        root.add_(inverse.mT, alpha=weight)  # of a symmetric matrix that lies column by column in memory
    return root


def _quintics(polish: int) -> tuple[tuple[float, float, float], ...]:
    """Coefficients a, b, c of the polynomials ax + bx³ + cx⁵ that are applied one after the other."""
    return (_FAST,) * 5 + (_POLISH,) * polish


@dataclass(frozen=True)
class Spectral(Geometry):
    r"""The spectral norm of every matrix, in the *regularised* form: the step is α‖G‖_* UVᵀ, and q = α‖G‖_*².

    ‖G‖_* is the nuclear norm and UVᵀ the orthogonal factor of G. In place of UVᵀ stands the O of
    :func:`Newton–Schulz <surefoot.optim.orthogonalise>`, and the step is then the best one along it:

        x⁺ = x − t·α·(⟨G, O⟩/‖O‖²)·O,    q = α⟨G, O⟩²/‖O‖²

    summed over the layers. Parameters of more than two dimensions (convolution kernels) are flattened behind the first
    one. All others, and groups with ``"spectral": False`` (embeddings and output layers, for example), have the
    geometry ``rest``; its rate is that of their group.

    The spectral norm has no inner product: δ is the drop of the model's proximal problem, and a diagnostic.

    Args:
        rest: geometry of everything that is not a matrix: :class:`Diagonal` (Adam's, default), :class:`Euclidean`, ...
        scale: a factor c of the layers' norms, ‖X‖/c with ‖X‖ the spectral norm: ``"unit"`` is 1, ``"original"``
            √max(1, rows/columns) and ``"match_rms_adamw"`` 0.2·√max(rows, columns), as in :class:`torch.optim.Muon`.
        polish: steps of Newton–Schulz that converge, after five of Muon's. Without them the singular values of O are
            anywhere in [0.68, 1.2].

    >>> import surefoot.optim as sfo
    >>> from surefoot.theory.models import Linear
    >>> W = torch.nn.Parameter(torch.zeros(2, 2))
    >>> opt = sfo.ModelBased([W], lr=1.0, model=Linear(), geometry=sfo.Spectral())
    >>> W.grad = torch.tensor([[3.0, 0.0], [0.0, -1.0]])
    >>> _ = opt.step(loss=1.0)
    >>> W.detach().round(decimals=1)                           # −(3 + 1)·UVᵀ
    tensor([[-4.,  0.],
            [ 0.,  4.]])
    >>> round(opt.last_step.delta.item(), 1)                   # ½(3 + 1)²
    8.0
    """

    rest: Geometry = field(default_factory=Diagonal)
    scale: str = "unit"
    polish: int = 2

    def __post_init__(self) -> None:
        if not isinstance(self.rest, Geometry) or isinstance(self.rest, Spectral):
            raise TypeError(f"rest must be another surefoot.optim.Geometry, got {self.rest!r}")
        if self.scale not in _SCALES:
            raise ValueError(f"scale must be one of {', '.join(map(repr, _SCALES))}, got {self.scale!r}")
        if not isinstance(self.polish, int) or isinstance(self.polish, bool) or not 0 <= self.polish <= 100:
            raise ValueError(f"polish must be an integer from 0 to 100, got {self.polish!r}")

    def split(self, parameters: list[Tensor], group: Mapping[str, Any]) -> list[tuple[Geometry, list[Tensor]]]:
        """This geometry for matrices, ``rest`` for all others."""
        if not group.get("spectral", True):
            return [(self.rest, parameters)]
        matrices = [p for p in parameters if p.ndim >= 2 and p.numel() > 0]
        others = [p for p in parameters if p.ndim < 2 or p.numel() == 0]
        return [(self, matrices), (self.rest, others)]

    def direction(self, gradient: Tensor, buffers: Sequence[Tensor], count: Tensor) -> Tensor:
        """c²(⟨G, O⟩/‖O‖²)·O."""
        factor = self._orthogonal(gradient)
        weight = (layer_scale(gradient, self.scale) / self.norm_bound) ** 2
        along = torch.sum(gradient.to(factor.dtype) * factor)
        return (weight * along * factor).to(gradient.dtype)

    @property
    def norm_bound(self) -> float:
        """An upper bound of ‖O‖ that holds whatever the matrix: 1.20 without polish, then 1.024, 1.00004, ...

        The polish is monotone, so that it maps bounds to bounds.
        """
        bound = _FAST_NORM
        a, b, c = _POLISH
        for _ in range(self.polish):
            bound = a * bound + b * bound**3 + c * bound**5
        return bound

    def _orthogonal(self, gradient: Tensor) -> Tensor:
        """The nearly orthogonal O, of the gradient's shape."""
        return orthogonalise(gradient.flatten(1).to(wide(gradient.dtype)), self.polish).reshape(gradient.shape)


def layer_scale(gradient: Tensor, scale: str) -> float:
    """The factor c of a layer's norm, by the shape of its matrix."""
    rows = gradient.shape[0]
    columns = gradient.numel() // rows
    if scale == "original":
        return math.sqrt(max(1.0, rows / columns))
    return 0.2 * math.sqrt(max(rows, columns)) if scale == "match_rms_adamw" else 1.0


@dataclass(frozen=True)
class SpectralBall(Spectral):
    """The spectral norm in the *ball-constrained* form, which is Muon's: x⁺ = x − t·α·c·O, and q = αc⟨G, O⟩.

    No layer moves further than α, whatever its gradient: α is a length here, and a rate in :class:`Spectral`. With the
    linear and the truncated model it is the minimiser of the model over the ball ‖y − x‖ ≤ α (the one closest to x).
    With every model it is the regularised step of rate α/‖G‖_* in each layer, and δ is the index of that step: ½α‖G‖_*
    for the linear model. The rate depends on the batch, so δ is a diagnostic.

    ``rest`` is regularised as ever: its step is in proportion to its direction.

    >>> import surefoot.optim as sfo
    >>> from surefoot.theory.models import Linear
    >>> W = torch.nn.Parameter(torch.zeros(2, 2))
    >>> opt = sfo.ModelBased([W], lr=0.1, model=Linear(), geometry=sfo.SpectralBall())
    >>> W.grad = torch.tensor([[3.0, 0.0], [0.0, -1.0]])
    >>> _ = opt.step(loss=1.0)
    >>> W.detach().round(decimals=3)
    tensor([[-0.1000,  0.0000],
            [ 0.0000,  0.1000]])
    """

    def direction(self, gradient: Tensor, buffers: Sequence[Tensor], count: Tensor) -> Tensor:
        """c·O."""
        return (layer_scale(gradient, self.scale) * self._orthogonal(gradient)).to(gradient.dtype)
