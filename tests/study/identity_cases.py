"""User code of a study, and edits of it: those that change numbers, and those that do not."""

HELPERS = """
import numpy as np

SCALE = 2.0
TABLE = {"relu": 1.0, "tanh": 0.5}


def shifted(x, by=0.5):
    return SCALE * x + by


def unused(x):
    return x


class Config:
    weight = 1.0
    modes = {"train", "valid", "test"}

    @property
    def factor(self):
        return 3.0 * self.weight

    @staticmethod
    def power():
        return 2


def numbers():
    return np.arange(4.0)
"""

CODE = '''
import math
from dataclasses import dataclass, field
from functools import lru_cache, partial, wraps

import numpy as np
import scipy.sparse
import torch
from torch import nn

import helpers
from helpers import Config, shifted
from helpers import TABLE as KINDS

RATE = 0.25
LAYERS = [8, 4]
OPTIONS = {"width": 8, "drop": 0.1}
NAMES = {"alpha", "beta", "gamma"}
MASK = torch.ones(3)
MATRIX = scipy.sparse.csr_matrix(np.eye(3))


@dataclass
class Settings:
    values: np.ndarray = field(default_factory=lambda: np.zeros(5000))
    depth: int = 2


class Slotted:
    __slots__ = ("low", "__high")

    def __init__(self, low, high):
        self.low, self.__high = low, high

    def span(self):
        return self.__high - self.low


SETTINGS = Settings()
SPAN = Slotted(0.0, 1.0)


def doubled(function):
    @wraps(function)
    def inner(*args):
        return 2 * function(*args)

    return inner


@doubled
def penalty(outputs):
    return outputs.square().mean()


@lru_cache
def constant():
    return 7.0


def make_scale(factor):
    return lambda x: factor * x


class Base(nn.Module):
    slope = 0.1

    def activate(self, x):
        return nn.functional.leaky_relu(x, self.slope)


class Net(Base):
    kinds = ("a", "b")

    def __init__(self, width=8):
        super().__init__()
        self.first = nn.Linear(6, width)
        self.last = nn.Linear(width, 3)
        self._secret = 1.5
        self.scale = make_scale(2.0)
        self.settings = SETTINGS
        self.span = SPAN
        self.matrix = MATRIX
        self.method = Config().power
        self.register_buffer("offset", torch.zeros(3), persistent=False)

    @property
    def gain(self):
        return 1.0

    @classmethod
    def shift(cls):
        return 0.0

    def forward(self, x):
        """What the model does."""
        from helpers import numbers

        hidden = self.activate(self.first(x))  # the first layer
        outputs = self.last(hidden)
        bent = self.scale(outputs) * self.gain * self._secret + self.offset + self.shift()
        bent = bent * MASK + RATE * len(LAYERS) + OPTIONS["drop"] + helpers.TABLE["relu"] + KINDS["tanh"]
        if "alpha" in {"alpha", "beta", "gamma"} and "alpha" in NAMES:
            bent = bent + float(numbers().sum()) * 0.001 + self.span.span() + self.settings.values[17]
        return shifted(bent) + constant() + self.method() + float(self.matrix.sum()) + Config().factor


def make():
    net = Net()
    return net


def loss(outputs, targets, *, smooth=0.1):
    total = nn.functional.cross_entropy(outputs, targets, label_smoothing=smooth)
    try:
        return total + 1e-3 * penalty(outputs)
    except ValueError:
        return total


def optimizer(parameters, lr):
    return torch.optim.SGD(parameters, lr=lr, momentum=0.5)
'''

# (name, file, old, new): each changes what the code computes, or can.
SEEN = [
    ("constant in forward", "code", "* 0.001", "* 0.002"),
    ("operator in forward", "code", "+ self.offset", "- self.offset"),
    ("operation of torch", "code", "leaky_relu(x, self.slope)", "elu(x, self.slope)"),
    ("module constant", "code", "RATE = 0.25", "RATE = 0.5"),
    ("module list", "code", "LAYERS = [8, 4]", "LAYERS = [8, 4, 2]"),
    ("config dict", "code", '"drop": 0.1', '"drop": 0.2'),
    ("set of strings", "code", '"gamma"}\nMASK', '"delta"}\nMASK'),
    ("set literal in code", "code", 'in {"alpha", "beta", "gamma"} and', 'in {"alpha", "beta", "delta"} and'),
    ("global tensor", "code", "MASK = torch.ones(3)", "MASK = torch.ones(3) / 2"),
    ("requires_grad of a tensor", "code", "MASK = torch.ones(3)", "MASK = torch.ones(3, requires_grad=True)"),
    ("dtype of a tensor", "code", "MASK = torch.ones(3)", "MASK = torch.ones(3, dtype=torch.bfloat16)"),
    ("sparse matrix", "code", "np.eye(3)", "np.diag([1.0, 1.0, 2.0])"),
    ("large array of a dataclass", "code", "np.zeros(5000)", "np.eye(1, 5000, 2500)[0]"),
    ("default of a dataclass", "code", "depth: int = 2", "depth: int = 3"),
    ("slot", "code", "SPAN = Slotted(0.0, 1.0)", "SPAN = Slotted(0.5, 1.0)"),
    ("private slot", "code", "SPAN = Slotted(0.0, 1.0)", "SPAN = Slotted(0.0, 2.0)"),
    ("method of a slotted class", "code", "self.__high - self.low", "self.__high + self.low"),
    ("decorator", "code", "return 2 * function(*args)", "return 3 * function(*args)"),
    ("decorated function", "code", "outputs.square().mean()", "outputs.abs().mean()"),
    ("cached function", "code", "return 7.0", "return 8.0"),
    ("closure", "code", "make_scale(2.0)", "make_scale(2.5)"),
    ("code of a closure", "code", "lambda x: factor * x", "lambda x: factor + x"),
    ("attribute of a base class", "code", "slope = 0.1", "slope = 0.2"),
    ("method of a base class", "code", "leaky_relu(x, self.slope)", "leaky_relu(x, 2 * self.slope)"),
    ("tuple of a class", "code", 'kinds = ("a", "b")', 'kinds = ("a", "c")'),
    ("private attribute", "code", "self._secret = 1.5", "self._secret = 1.6"),
    ("property", "code", "return 1.0", "return 1.1"),
    ("classmethod", "code", "return 0.0", "return 0.1"),
    ("buffer that is not saved", "code", "torch.zeros(3), persistent", "torch.ones(3), persistent"),
    ("default of a model", "code", "width=8", "width=16"),
    ("frozen layer", "code", "    return net", "    net.first.weight.requires_grad_(False)\n    return net"),
    ("forward hook", "code", "    return net", "    net.register_forward_hook(lambda m, i, o: o * 2)\n    return net"),
    ("hook of a layer", "code", "    return net",
     "    net.last.register_forward_pre_hook(lambda m, i: None)\n    return net"),
    ("hook of a gradient", "code", "    return net",
     "    net.last.weight.register_hook(lambda g: g / 2)\n    return net"),
    ("initial weights", "code", "    return net", "    nn.init.zeros_(net.last.bias)\n    return net"),
    ("evaluation mode", "code", "    return net", "    net.last.eval()\n    return net"),
    ("default of a loss", "code", "smooth=0.1", "smooth=0.2"),
    ("constant of a loss", "code", "1e-3 * penalty", "1e-2 * penalty"),
    ("what a loss catches", "code", "except ValueError", "except TypeError"),
    ("option of an optimizer", "code", "momentum=0.5", "momentum=0.9"),
    ("kind of an optimizer", "code", "torch.optim.SGD(parameters, lr=lr, momentum=0.5)",
     "torch.optim.Adam(parameters, lr=lr)"),
    ("constant of another module", "helpers", "SCALE = 2.0", "SCALE = 2.5"),
    ("dict of another module", "helpers", '"relu": 1.0', '"relu": 1.5'),
    ("imported dict under another name", "helpers", '"tanh": 0.5', '"tanh": 0.6'),
    ("imported function", "helpers", "SCALE * x + by", "SCALE * x - by"),
    ("default of an imported function", "helpers", "by=0.5", "by=0.6"),
    ("import inside of a function", "helpers", "np.arange(4.0)", "np.arange(5.0)"),
    ("attribute of an imported class", "helpers", "weight = 1.0", "weight = 1.2"),
    ("property of an imported class", "helpers", "3.0 * self.weight", "3.5 * self.weight"),
    ("bound method", "helpers", "return 2", "return 3"),
    ("set of an imported class", "helpers", '"valid", "test"}', '"valid", "last"}'),
]  # fmt: skip

# Each leaves all numbers as they are.
UNSEEN = [
    ("comment", "code", "# the first layer", "# the very first layer"),
    ("another comment", "code", "RATE = 0.25", "RATE = 0.25  # found by hand"),
    ("docstring", "code", '"""What the model does."""', '"""Other words."""'),
    ("empty lines", "code", "\n\n\n@doubled", "\n\n\n\n\n\n@doubled"),
    ("name of a local", "code", "hidden", "inner_layer"),
    ("name of a local of a loss", "code", "total", "result"),
    ("order of definitions", "code", "RATE = 0.25\nLAYERS = [8, 4]", "LAYERS = [8, 4]\nRATE = 0.25"),
    ("order of methods", "helpers", '    weight = 1.0\n    modes = {"train", "valid", "test"}',
     '    modes = {"test", "train", "valid"}\n    weight = 1.0'),
    ("order of a set", "code", '{"alpha", "beta", "gamma"}\nMASK', '{"gamma", "beta", "alpha"}\nMASK'),
    ("function that nobody calls", "helpers", "    return x\n", "    return -x\n"),
    ("new function", "helpers", "def unused", "def more():\n    return 1\n\n\ndef unused"),
    ("new import", "code", "import math\n", "import math\nimport json\n"),
    ("parentheses", "code", "1e-3 * penalty(outputs)", "(1e-3 * (penalty(outputs)))"),
    ("line break", "code", "        bent = bent * MASK", "        bent = \\\n            bent * MASK"),
    ("annotation", "code", "def make():", "def make() -> nn.Module:"),
]  # fmt: skip
