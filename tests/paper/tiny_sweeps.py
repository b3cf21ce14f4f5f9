"""The network sweeps on a perceptron that trains in milliseconds: the same parts and methods, fewer steps."""

from __future__ import annotations

import math

from surefoot.paper import presets

METHODS = {
    "constant": ["sgd", "sps", "ngn", "log-ngn"],
    "warmup": ["sgd"],
    "averaged": ["sgd-momentum", "momo", "ngn-momentum"],
    "plain": ["sgd"],
    "adam": ["adamw", "sps-adam", "ngn-adam"],
    "surefoot": ["surefoot"],
}
PARTS = {
    "cifar10": ("constant", "warmup"),
    "cifar10-geometries": ("averaged", "adam", "surefoot"),
    "characters": ("plain", "adam", "surefoot"),
}
LRS = [0.01, 1.0, 100.0]


def install(patch, lrs=LRS, seeds=2, batch_size=128):
    """Put tiny sweeps in place of all presets."""

    def settings(name, part):
        return {
            "problem": "digits-mlp",
            "problem_options": {"hidden": [16]},
            "methods": METHODS[part],
            "lrs": list(lrs),
            "seeds": seeds,
            "epochs": 2,
            "batch_size": batch_size,
            "distance": None if name == "characters" else 5.0,
            "schedule": "warmup(steps=5)" if part == "warmup" else "constant",
        }

    for name, parts in PARTS.items():
        reference = None if name == "characters" else math.log(10)
        every = {part: settings(name, part) for part in parts}
        sweep = presets.Sweep("a perceptron", every, reference, (0.01, 1.0, 100.0))
        patch.setitem(presets._SWEEPS, name, lambda preset, device, data, sweep=sweep: sweep)
