"""Every named optimizer by its name."""

from __future__ import annotations

from surefoot.optim._base import ModelBased
from surefoot.optim._muon import Muon, NGNMuon, SPSMuon
from surefoot.optim._rows import (
    NGN,
    SGD,
    SPS,
    LogNGN,
    MoMo,
    MoMoAdam,
    NGNAdam,
    NGNMomentum,
    PowerStep,
    SPSAdam,
)

_ROWS = (SGD, SPS, NGN, LogNGN, PowerStep, MoMo, NGNMomentum, SPSAdam, NGNAdam, MoMoAdam, Muon, SPSMuon, NGNMuon)

TABLE: dict[str, type[ModelBased]] = {row.__name__: row for row in _ROWS}
"""Every named optimizer by its name."""
