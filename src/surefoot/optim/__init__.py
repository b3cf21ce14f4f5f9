"""Torch optimizers whose step comes from a model of the loss: model × geometry × averaging × height.

================  ===========  ===========  =========================
name              model        geometry     averaging
================  ===========  ===========  =========================
SGD               Linear       Euclidean    –
SPS               Truncated    Euclidean    –
NGN               SquareRoot   Euclidean    –
LogNGN            Exponential  Euclidean    –
PowerStep         Power(p)     Euclidean    –
MoMo              Truncated    Euclidean    linearisations, β = 0.9
NGNMomentum       SquareRoot   Euclidean    heavy ball, β = 0.9
SPSAdam           Truncated    Diagonal     –
NGNAdam           SquareRoot   Diagonal     linearisations, β = 0.9
MoMoAdam          Truncated    Diagonal     linearisations, β = 0.9
NGNMomentumAdam   SquareRoot   Diagonal     heavy ball, β = 0.9
Muon              Linear       Spectral     linearisations, β = 0.95
SPSMuon           Truncated    Spectral     linearisations, β = 0.9
NGNMuon           SquareRoot   Spectral     linearisations, β = 0.9
NGNMomentumMuon   SquareRoot   Spectral     heavy ball, β = 0.9
Surefoot          Truncated    Spectral     agreed direction, β = 0.9
================  ===========  ===========  =========================

(Muon, NGNMomentumMuon and Surefoot in the ball-constrained form, the other two in the regularised one.)
``averaging=ScheduleFree()`` replaces the averaging of any of them, and so does ``AveragedDirection(0.9)``, momentum
with one scale for the whole step. The height is where the loss is measured from: a fixed ``lower_bound``, an
:class:`Estimate`, or a :class:`Level`, which needs no lower bound. Beside the table stands SPP, the exact model, which
needs a closure.

They are drop-in replacements for torch's optimizers with one change: the step wants to know the loss.

>>> import torch, surefoot.optim as sfo
>>> model = torch.nn.Linear(3, 1)
>>> opt = sfo.NGN(model.parameters(), lr=10.0)
>>> loss = model(torch.ones(2, 3)).square().mean()
>>> loss.backward()
>>> _ = opt.step(loss=loss)
"""

from surefoot.optim._arithmetic import Arithmetic, Device, Host, Scalar
from surefoot.optim._averaging import AveragedDirection, Averaging, HeavyBall, Linearisations, ScheduleFree
from surefoot.optim._base import ModelBased
from surefoot.optim._distributed import mean_over_ranks
from surefoot.optim._geometry import Diagonal, Euclidean, Geometry
from surefoot.optim._height import Estimate, Fixed, Height, Sight
from surefoot.optim._level import Level
from surefoot.optim._losses import Losses, scalar
from surefoot.optim._rows import (
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
    NGNMomentumMuon,
    NGNMuon,
    PowerStep,
    SPSAdam,
    SPSMuon,
)
from surefoot.optim._settings import Options
from surefoot.optim._spectral import Spectral, SpectralBall, orthogonalise
from surefoot.optim._spp import SPP, ProximalStep
from surefoot.optim._surefoot import AgreedDirection, Surefoot, split

__all__ = [
    "NGN", "SGD", "SPP", "SPS", "TABLE", "AgreedDirection", "Arithmetic", "AveragedDirection", "Averaging", "Device",
    "Diagonal", "Estimate", "Euclidean", "Fixed", "Geometry", "HeavyBall", "Height", "Host", "Level",
    "Linearisations", "LogNGN", "Losses", "MoMo", "MoMoAdam", "ModelBased", "Muon", "NGNAdam", "NGNMomentum",
    "NGNMomentumAdam", "NGNMomentumMuon", "NGNMuon", "Options", "PowerStep", "ProximalStep", "SPSAdam", "SPSMuon",
    "Scalar", "ScheduleFree", "Sight", "Spectral", "SpectralBall", "Surefoot", "mean_over_ranks", "orthogonalise",
    "scalar", "split",
]  # fmt: skip
