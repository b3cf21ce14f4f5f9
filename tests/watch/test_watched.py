"""One optimizer that is watched."""

from __future__ import annotations

import pytest
import torch

import surefoot.optim as sfo
from surefoot.watch._watched import Watched


@pytest.mark.parametrize("make", [sfo.NGN, sfo.Surefoot, torch.optim.SGD])
def test_an_optimizer_that_is_gone_still_has_its_verdict(make):
    x = torch.nn.Parameter(torch.full((8, 8), 3.0))
    optimizer = make([x], lr=0.5)
    watched = Watched(optimizer, 60)
    watched.begin(optimizer, None)
    for _ in range(60):
        optimizer.zero_grad()
        x.square().mean().backward()
        optimizer.step()
    watched.ask(None)
    before = watched.verdict
    del optimizer
    assert len(list(watched.lost())) == 60
    assert watched.trouble is None
    assert before is not None
    assert watched.verdict == before
