"""Torch optimizers that know the loss: Surefoot, which needs no rate, and those whose step comes from a model of it.

===============  ===========  =========  ========================
name             model        geometry   momentum
===============  ===========  =========  ========================
SGD              Linear       Euclidean  –
SPS              Truncated    Euclidean  –
NGN              SquareRoot   Euclidean  –
LogNGN           Exponential  Euclidean  –
MoMo             Truncated    Euclidean  linearisations, β = 0.9
NGNMomentum      SquareRoot   Euclidean  heavy ball, β = 0.9
NGNAdam          SquareRoot   Diagonal   linearisations, β = 0.9
MoMoAdam         Truncated    Diagonal   linearisations, β = 0.9
NGNMomentumAdam  SquareRoot   Diagonal   heavy ball, β = 0.9
Muon             Linear       Spectral   linearisations, β = 0.95
SPSMuon          Truncated    Spectral   linearisations, β = 0.9
===============  ===========  =========  ========================

(Muon in the ball-constrained form, SPSMuon in the regularised one.) :class:`ModelBased` takes every other combination;
``momentum=ScheduleFree()`` replaces the momentum of any of them. The gap F = f − C is measured from a fixed
``lower_bound``, an :class:`Estimate`, or a :class:`Level`, which needs no lower bound. Beside them stand SPP, the exact
model, which needs a closure, and :class:`Surefoot`, an algorithm of its own.

They are drop-in replacements for torch's optimizers with one change: the step wants to know the loss.

>>> import torch, surefoot.optim as sfo
>>> model = torch.nn.Linear(3, 1)
>>> opt = sfo.NGN(model.parameters(), lr=10.0)
>>> loss = model(torch.ones(2, 3)).square().mean()
>>> loss.backward()
>>> _ = opt.step()
"""

from surefoot.optim._geometry import Diagonal, Euclidean, Geometry
from surefoot.optim._interface import LossOptimizer
from surefoot.optim._losses import Losses, scalar
from surefoot.optim._lower_bound import Bounded, Estimate, Level, LowerBound
from surefoot.optim._model_based import ModelBased, Options
from surefoot.optim._momentum import HeavyBall, Linearisations, ScheduleFree
from surefoot.optim._named import (
    NGN,
    SGD,
    SPS,
    TABLE,
    LogNGN,
    MoMo,
    MoMoAdam,
    Muon,
    NGNAdam,
    NGNMomentum,
    NGNMomentumAdam,
    SPSMuon,
)
from surefoot.optim._spectral import Spectral, SpectralBall, orthogonalise
from surefoot.optim._spp import SPP
from surefoot.optim.surefoot import Surefoot, split

__all__ = [
    "NGN",
    "SGD",
    "SPP",
    "SPS",
    "TABLE",
    "Bounded",
    "Diagonal",
    "Estimate",
    "Euclidean",
    "Geometry",
    "HeavyBall",
    "Level",
    "Linearisations",
    "LogNGN",
    "LossOptimizer",
    "Losses",
    "LowerBound",
    "MoMo",
    "MoMoAdam",
    "ModelBased",
    "Muon",
    "NGNAdam",
    "NGNMomentum",
    "NGNMomentumAdam",
    "Options",
    "SPSMuon",
    "ScheduleFree",
    "Spectral",
    "SpectralBall",
    "Surefoot",
    "orthogonalise",
    "scalar",
    "split",
]  # fmt: skip
