"""Loops as scripts have them, each with a look around from inside; without asserts, which pytest rewrites."""

from __future__ import annotations

import itertools
import sys
from types import SimpleNamespace

import torch

from surefoot.watch import _loops
from surefoot.watch._loops import variables

DATA = torch.utils.data.TensorDataset(torch.zeros(20, 1))
LOADER = torch.utils.data.DataLoader(DATA, batch_size=3)


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(range(3))


def look(built=frozenset()):
    """The loops of this file alone: pytest's own stand around them."""
    frame = sys._getframe(1)
    found = []
    while frame is not None and frame.f_code.co_filename == __file__:
        found.append(frame)
        frame = frame.f_back
    original, _loops.outwards = _loops.outwards, lambda _: iter(found)
    try:
        return _loops.around(sys._getframe(1), built)
    finally:
        _loops.outwards = original


def nested():
    args, config = SimpleNamespace(epochs=4), {"repeats": 2}
    for _ in range(args.epochs):
        for _ in range(1, 1 + config["repeats"]):
            for i, _ in enumerate(LOADER):
                if i == 2:
                    return look()
    return None


def calling():
    def epoch():
        for _ in zip(LOADER, range(100), strict=False):
            return look()
        return None

    for _ in range(3):
        return epoch()
    return None


def built_inside():
    data = torch.zeros(30)
    for _ in range(5):
        built = frozenset({(__file__, sys._getframe().f_lineno)})
        for _ in data.split(10):
            return look(built)
    return None


def endless():
    while True:
        for _ in LOADER:
            return look()


def counting():
    for _ in itertools.count():
        return look()
    return None


def streaming():
    for _ in torch.utils.data.DataLoader(Stream()):
        return look()
    return None


def behind():
    for _ in range(3):
        pass
    else:
        return look()


def with_locals():
    config = locals()
    later = 1
    return dict(variables(sys._getframe())), dict(config) if later else None


def without_locals():
    here = 3
    return variables(sys._getframe())["here"] * (here // here)
