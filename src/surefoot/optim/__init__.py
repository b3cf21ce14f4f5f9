"""Torch optimizers whose step comes from a model of the loss: model × geometry × averaging.

=============  ===========  ===========  =========================
name           model        geometry     averaging
=============  ===========  ===========  =========================
SGD            Linear       Euclidean    –
SPS            Truncated    Euclidean    –
NGN            SquareRoot   Euclidean    –
LogNGN         Exponential  Euclidean    –
PowerStep      Power(p)     Euclidean    –
MoMo           Truncated    Euclidean    linearisations, β = 0.9
NGNMomentum    SquareRoot   Euclidean    heavy ball, β = 0.9
SPSAdam        Truncated    Diagonal     –
NGNAdam        SquareRoot   Diagonal     linearisations, β = 0.9
MoMoAdam       Truncated    Diagonal     linearisations, β = 0.9
=============  ===========  ===========  =========================

They are drop-in replacements for torch's optimizers with one change: the step wants to know the loss.

>>> import torch, surefoot.optim as sfo
>>> model = torch.nn.Linear(3, 1)
>>> opt = sfo.NGN(model.parameters(), lr=10.0)
>>> loss = model(torch.ones(2, 3)).square().mean()
>>> loss.backward()
>>> _ = opt.step(loss=loss)
"""

from surefoot.optim._averaging import Averaging, HeavyBall, Linearisations
from surefoot.optim._base import ModelBased
from surefoot.optim._geometry import Diagonal, Euclidean, Geometry
from surefoot.optim._rows import (
    NGN,
    SGD,
    SPS,
    TABLE,
    LogNGN,
    MoMo,
    MoMoAdam,
    NGNAdam,
    NGNMomentum,
    PowerStep,
    SPSAdam,
)
from surefoot.optim._settings import Estimate

__all__ = [
    "NGN",
    "SGD",
    "SPS",
    "TABLE",
    "Averaging",
    "Diagonal",
    "Estimate",
    "Euclidean",
    "Geometry",
    "HeavyBall",
    "Linearisations",
    "LogNGN",
    "MoMo",
    "MoMoAdam",
    "ModelBased",
    "NGNAdam",
    "NGNMomentum",
    "PowerStep",
    "SPSAdam",
]
