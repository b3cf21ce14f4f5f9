"""Slow, readable twins of the optimizers: one vector of all parameters, one formula per line.

They exist to be read, and to be compared with: the tests hold every optimizer against its twin. All arithmetic is in
float64, each coordinate has its own rate α and weight decay λ (that is what parameter groups are), the averages are
those of the papers, inner products with the parameters included, and nothing is skipped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

import surefoot.optim as sfo
from surefoot.optim import Diagonal, Geometry, HeavyBall, Linearisations, ScheduleFree, Spectral, SpectralBall
from surefoot.theory.models import Model, Step


def twin(name: str, params: Iterable[Any], lr: float, **options: Any) -> Reference:
    """The twin of a named optimizer: the same model, geometry and momentum."""
    made = sfo.TABLE[name]([torch.nn.Parameter(torch.zeros(1))])
    parts = {"model": made.model, "geometry": made.geometry, "momentum": made.momentum}
    return Reference(params, lr, **{**parts, **options})


class Reference:
    """One step of model × geometry × momentum, written out; of these parts it takes nothing but their numbers."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        *,
        model: Model,
        geometry: Geometry | None = None,
        momentum: Any = None,
        weight_decay: float = 0.0,
        lower_bound: float = 0.0,
        max_grad_norm: float | None = None,
    ) -> None:
        self.groups: list[dict[str, Any]] = [g if isinstance(g, dict) else {"params": [g]} for g in params]
        self.lr, self.weight_decay = lr, weight_decay
        self.model, self.geometry, self.momentum = model, geometry, momentum
        self.lower_bound, self.max_grad_norm = lower_bound, max_grad_norm
        self.params = [p for group in self.groups for p in group["params"]]
        self.k = 0
        self.d = self.v = torch.zeros_like(self.vector(self.params))
        self.f_bar = self.gamma = 0.0
        self.x_bar = self.z = self.vector(self.params)
        self.weights = torch.zeros_like(self.d)

    @staticmethod
    def vector(tensors: Iterable[Tensor]) -> Tensor:
        """All tensors as one float64 vector."""
        return torch.cat([t.detach().double().reshape(-1) for t in tensors])

    def each(self, name: str, default: float) -> Tensor:
        """A group option as one number a coordinate."""
        rows = [float(g.get(name, default)) for g in self.groups for p in g["params"] for _ in range(p.numel())]
        return torch.tensor(rows, dtype=torch.float64)

    @torch.no_grad()
    def step(self, loss: Tensor) -> Step:
        """One step with the gradients in place; returns the scale t (as ``size``) and δ."""
        alpha, lam = self.each("lr", self.lr), self.each("weight_decay", self.weight_decay)
        x, g, f = self.vector(self.params), self.vector([p.grad for p in self.params]), float(loss)
        self.k += 1

        # The model of the loss: its gradient d, and its value at x (at z, if x is schedule-free averaging's y).
        averaging = self.momentum
        d, value = g, f
        if isinstance(averaging, ScheduleFree):
            x, value = self.z, f + float(g @ (self.z - x))
        elif isinstance(averaging, Linearisations) and averaging.beta:
            d, value = self.averaged(x, g, f, averaging)

        # The geometry: the matrices' own, and a metric D for all other parameters.
        D = torch.ones_like(x)
        metric = self.geometry.rest if isinstance(self.geometry, Spectral) else self.geometry
        if isinstance(metric, Diagonal):
            self.v = metric.beta * self.v + (1 - metric.beta) * g**2
            D = (self.v / (1 - metric.beta**self.k)).sqrt() + metric.eps

        def direction(vector: Tensor) -> Tensor:
            if isinstance(self.geometry, Spectral):
                return self.orthogonal(vector, vector / D, self.geometry)
            return vector / D

        rate = alpha if self.max_grad_norm is None else alpha * min(1.0, self.max_grad_norm / float(d.norm()))

        # Scale, index, and the new point.
        step = self.model.step(value - self.lower_bound, float((rate * d * direction(d)).sum()), 1.0)
        move = step.size * rate * direction(d)
        if isinstance(averaging, HeavyBall):
            self.d = averaging.beta * self.d + (1 - averaging.beta) * move
            move = self.d
        x_new = (1 - step.size * rate * lam) * x - move
        if isinstance(averaging, ScheduleFree):
            self.write(self.interpolated(x_new, alpha, averaging))
            return Step(step.size, step.delta)
        self.write(x_new)
        return Step(step.size, step.delta + f - value)

    def orthogonal(self, d: Tensor, rest: Tensor, geometry: Spectral) -> Tensor:
        """The direction in the spectral geometry: that of d for matrices, ``rest`` for all other parameters.

        Newton–Schulz is a polynomial of the singular values.
        """
        sizes = [p.numel() for p in self.params]
        pieces = [torch.split(vector, sizes) for vector in (d, rest)]
        u = []
        for p, d_piece, rest_piece in zip(self.params, *pieces, strict=True):
            if p.ndim < 2:
                u.append(rest_piece)
                continue
            G = d_piece.view(p.shape[0], -1)
            U, s, Vt = torch.linalg.svd(G, full_matrices=False)
            norm = 1.2024
            s = s / s.norm()
            for _ in range(5):
                s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
            for _ in range(geometry.polish):
                s, norm = ((15 * value - 10 * value**3 + 3 * value**5) / 8 for value in (s, norm))
            O = (U * s) @ Vt  # noqa: E741
            c = math.sqrt(max(1.0, G.shape[0] / G.shape[1])) if geometry.scale == "original" else 1.0
            ball = isinstance(geometry, SpectralBall)
            u.append((c * O if ball else c**2 * (G * O).sum() / norm**2 * O).reshape(-1))
        return torch.cat(u)

    def interpolated(self, z: Tensor, alpha: Tensor, averaging: ScheduleFree) -> Tensor:
        """Schedule-free averaging: x averages all z with weights α^power; returns y between x and z."""
        weight = alpha**averaging.power
        self.weights = self.weights + weight
        self.z, self.x_bar = z, self.x_bar + weight / self.weights * (z - self.x_bar)
        return (1 - averaging.beta) * self.z + averaging.beta * self.x_bar

    def averaged(self, x: Tensor, g: Tensor, f: float, averaging: Linearisations) -> tuple[Tensor, float]:
        """MoMo's averages: f̄, d, γ, and the value (f̄ + ⟨d, x⟩ − γ)/ρ at x."""
        beta = averaging.beta if self.k > 1 or averaging.bias_correction else 0.0
        self.f_bar = beta * self.f_bar + (1 - beta) * f
        self.d = beta * self.d + (1 - beta) * g
        self.gamma = beta * self.gamma + (1 - beta) * float(g @ x)
        rho = 1 - averaging.beta**self.k if averaging.bias_correction else 1.0
        return self.d / rho, (self.f_bar + float(self.d @ x) - self.gamma) / rho

    def write(self, x: Tensor) -> None:
        """Put the vector back into the parameters."""
        for p, piece in zip(self.params, torch.split(x, [p.numel() for p in self.params]), strict=True):
            p.copy_(piece.view_as(p))


class Surefoot:
    """Twin of :class:`surefoot.optim.Surefoot`: one step, written out from top to bottom; ``lr`` is its cap."""

    def __init__(self, params: Iterable[Tensor], lr: float = 10.0, *, beta: float = 0.9, share: float = 0.9) -> None:
        self.params, self.lr, self.beta, self.share = list(params), lr, beta, share
        self.m, self.v, self.u = ([torch.zeros_like(p) for p in self.params] for _ in range(3))
        self.k, self.smooth, self.best, self.lowest = 0, 0.0, math.inf, math.inf
        self.first = self.q_level = self.q_mean = self.overlap = self.slope = self.spread = 0.0

    @staticmethod
    def orthogonal(G: Tensor) -> Tensor:
        """0.2·√max(rows, columns) times nearly UVᵀ: Zolotarev's function of the singular values."""
        U, s, Vt = torch.linalg.svd(G.flatten(1), full_matrices=False)
        s = s / s.norm().clamp_min(1e-300)
        terms = ((4.5597e-3, 6.8871e-6), (0.035981, 6.7346e-4), (0.32759, 0.053346))
        s = s * (0.69096 + sum(weight / (s * s + pole) for weight, pole in terms))
        orthogonal: Tensor = 0.2 * math.sqrt(max(U.shape[0], Vt.shape[1])) * (U * s) @ Vt
        return orthogonal.reshape(G.shape)

    @torch.no_grad()
    def step(self, loss: Tensor, schedule: float = 1.0) -> None:
        """One step with the gradients in place; ``schedule`` is the factor η of the rate."""
        self.k += 1
        f, k = float(loss), self.k

        # What the batch sees along the last direction, the norm of its own gradient, and that of the average.
        overlap = sum(float((p.grad * u).sum()) for p, u in zip(self.params, self.u, strict=True) if p.grad is not None)
        q = slope = nuclear = frobenius = 0.0
        for i, p in enumerate(self.params):
            g, m, v = p.grad, self.m[i], self.v[i]
            assert g is not None
            w = (1 - self.beta) / (1 - self.beta**k)
            m.add_(w * (g - m))
            if p.ndim >= 2:
                self.u[i] = self.orthogonal(m)
                nuclear += float((g * self.orthogonal(g)).sum())
                frobenius += 0.2 * math.sqrt(max(g.flatten(1).shape)) * float(g.norm())
            else:
                v.add_(0.01 * (g * g - v))
                D = (v / (1 - 0.99**k)).sqrt() + 1e-12
                self.u[i] = m / D
                q += float((g * g / D).sum())
            slope += float((m * self.u[i]).sum())

        if k % 5 == 1:  # the nuclear norms change as the Frobenius norms do in between
            self.spread = nuclear / frobenius if frobenius > 0 else self.spread
        q += self.spread * frobenius

        # The height of the loss over the level.
        w = 0.1 / (1 - 0.9**k)
        self.smooth += w * (f - self.smooth)
        self.best, self.lowest = min(self.best, self.smooth), min(self.lowest, f)
        self.first = f if k == 1 else self.first
        gain = max(self.share * (self.first - self.best), 0.1 * (abs(self.first) or 1.0))
        gain = gain if self.lowest < 0 or self.first <= 0 else min(gain, max(self.best, 0.0))
        height = max(f - self.best, 0.0) + gain

        # How long the step is: Polyak's, shortened as far as batches disagree, and the more by a schedule as it falls.
        self.q_level += w * (q - self.q_level)
        window = max(20.0, k / 5)
        w = 1 / min(k, window)
        self.overlap += w * ((overlap if k > 1 else slope) - self.overlap)
        self.slope += w * (slope - self.slope)
        self.q_mean += w * (q - self.q_mean)
        scale = min(1.0, height / (self.lr * max(q, self.q_level))) if q > 0 and height > 0 else 0.0
        agreed = min(max(self.overlap / self.slope, 0.0), 1.0) ** 0.6 if self.slope > 0 else 0.0
        left = min(max((self.first - self.best) / (0.1 * (abs(self.first) or 1.0)), 0.0), 1.0)
        agreed = 1.0 - left * (1.0 - agreed)
        scale *= max(agreed**schedule * schedule ** (1 - schedule), schedule / math.sqrt(window))
        scale *= min(1.0, q / self.q_mean) if self.q_mean > 0 else 0.0
        for p, u in zip(self.params, self.u, strict=True):
            p.sub_(scale * self.lr * u)
