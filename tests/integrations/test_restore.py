"""Putting back what some objects have held."""

from __future__ import annotations

import torch

from surefoot.integrations._restore import Snapshot


def test_an_expanded_buffer_gets_its_content_back():
    base = torch.arange(4.0)
    module = torch.nn.Module()
    module.register_buffer("mask", base.expand(3, 4))
    snapshot = Snapshot(module)
    base.zero_()
    snapshot.restore()
    assert module.mask.stride() == (0, 1)
    assert torch.equal(base, torch.arange(4.0))


def test_an_inference_tensor_gets_its_content_back():
    with torch.inference_mode():
        last = torch.ones(3)
    module = torch.nn.Module()
    module.last = last
    snapshot = Snapshot(module)
    with torch.inference_mode():
        last.zero_()
    snapshot.restore()
    assert torch.equal(last, torch.ones(3))
