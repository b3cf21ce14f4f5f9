"""User code, and edits of it: those that change numbers, and those that do not."""

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


BEFORE = """
import array, builtins, collections, contextvars, copy, dataclasses, enum, fractions, functools, importlib, itertools
import operator, os, random, sys, threading, types, weakref
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
"""
"""What each of the following begins with."""

# (name, code, one value of VALUE, another one): each computes something else with the other value.
ALONE = [
    # Wrappers and other callables.
    ("wrapper of a library function", """
@functools.wraps(F.mse_loss)
def loss(outputs, targets):
    return VALUE * F.mse_loss(outputs, targets)
""", "1.0", "3.0"),
    ("decorator of library functions", """
def scaled(function):
    @functools.wraps(function)
    def inner(*args):
        return VALUE * function(*args)
    return inner
act = scaled(F.relu)
def loss(outputs, targets):
    return act(outputs).mean()
""", "1.0", "3.0"),
    ("name and module taken from the library", """
def loss(outputs, targets):
    return VALUE * outputs.mean()
loss.__module__, loss.__qualname__, loss.__name__ = "torch.nn.functional", "relu", "relu"
""", "1.0", "3.0"),
    ("function under __wrapped__", """
def loss(outputs, targets):
    return loss.__wrapped__(outputs)
loss.__wrapped__ = lambda outputs: VALUE * outputs.mean()
""", "1.0", "3.0"),
    ("partial of a partial", """
def power(by, outputs, targets):
    return outputs.mean() ** by
loss = functools.partial(functools.partial(power), VALUE)
""", "1", "2"),
    ("method of a callable's base class", """
class Base:
    def __call__(self, outputs, targets):
        return VALUE * outputs.mean()
class Loss(Base):
    pass
loss = Loss()
""", "1.0", "3.0"),
    ("methodcaller", "loss = operator.methodcaller('mul', VALUE)", "1.0", "3.0"),
    ("vectorised function", """
bend = np.vectorize(lambda x: VALUE * x)
def loss(outputs, targets):
    return float(bend(1.0)) * outputs.mean()
""", "1.0", "3.0"),
    ("mapped by torch.vmap", """
def one(x):
    return VALUE * x.sum()
mapped = torch.vmap(one)
def loss(outputs, targets):
    return mapped(outputs).mean()
""", "1.0", "3.0"),
    ("backward of an autograd function", """
class Bent(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.clone()
    @staticmethod
    def backward(context, gradient):
        return gradient * VALUE
def loss(outputs, targets):
    return Bent.apply(outputs.mean())
""", "1.0", "3.0"),
    # Networks.
    ("class below a parametrization", """
class Linear(nn.Linear):
    def forward(self, x):
        return VALUE * super().forward(x)
def make():
    return nn.utils.parametrizations.weight_norm(Linear(4, 1))
""", "1.0", "3.0"),
    ("class below spectral_norm in a network", """
class Linear(nn.Linear):
    def forward(self, x):
        return VALUE * super().forward(x)
def make():
    return nn.Sequential(nn.utils.parametrizations.spectral_norm(Linear(4, 4)), nn.Linear(4, 1))
""", "1.0", "3.0"),
    ("attribute of a parameter", """
def make():
    model = nn.Linear(4, 1)
    model.weight.factor = VALUE
    return model
""", "1.0", "0.1"),
    ("kind of tensor", """
class Bent(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, kinds, args=(), kwargs=None):
        result = super().__torch_function__(function, kinds, args, kwargs or {})
        return result * VALUE if function is F.linear else result
def make():
    model = nn.Linear(4, 1)
    model.weight = nn.Parameter(model.weight.detach().as_subclass(Bent))
    return model
""", "1.0", "3.0"),
    ("tied layers of equal values", """
def make():
    layer = nn.LayerNorm(4)
    return nn.Sequential(layer, nn.Linear(4, 4), VALUE)
""", "nn.LayerNorm(4)", "layer"),
    ("tied weight", """
def make():
    one = nn.Linear(4, 4)
    other = copy.deepcopy(one)
    VALUE
    return nn.Sequential(one, other)
""", "pass", "other.weight = one.weight"),
    ("attribute with state_dict in its name", """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.teacher_state_dict = {"scale": VALUE}
def make():
    return Net()
""", "1.0", "3.0"),
    ("forward of an instance", """
def make():
    model = nn.Linear(4, 1)
    model.forward = types.MethodType(lambda self, x: F.linear(x, self.weight) * VALUE, model)
    return model
""", "1.0", "3.0"),
    ("hook after the gradient of a parameter", """
def make():
    model = nn.Linear(4, 1)
    model.weight.register_post_accumulate_grad_hook(lambda p: p.grad.mul_(VALUE))
    return model
""", "1.0", "0.1"),
    ("lazy layers", """
def make():
    return nn.Sequential(nn.LazyLinear(VALUE), nn.ReLU())
""", "4", "5"),
    ("traced module", """
class Net(nn.Module):
    def forward(self, x):
        return VALUE * x
def make():
    return torch.fx.symbolic_trace(Net())
""", "1.0", "3.0"),
    ("class attribute of an optimizer", """
class Mine(torch.optim.SGD):
    M = VALUE
    def __init__(self, parameters, lr):
        super().__init__(parameters, lr=lr, momentum=self.M)
optimizer = Mine
""", "0.0", "0.9"),
    # Containers and values of the standard library.
    ("default of a defaultdict", """
weights = collections.defaultdict(lambda: VALUE)
def loss(outputs, targets):
    return weights["a"] * outputs.mean()
""", "1.0", "3.0"),
    ("namespace and chained maps", """
options = types.SimpleNamespace(a=collections.ChainMap({"k": VALUE}))
def loss(outputs, targets):
    return options.a["k"] * outputs.mean()
""", "1.0", "3.0"),
    ("default of a namedtuple", """
Options = collections.namedtuple("Options", "k", defaults=(VALUE,))
def loss(outputs, targets):
    return Options().k * outputs.mean()
""", "1.0", "3.0"),
    ("array of the standard library", """
table = array.array("d", [VALUE])
def loss(outputs, targets):
    return table[0] * outputs.mean()
""", "1.0", "3.0"),
    ("function in a dict", """
table = {"k": lambda x: VALUE * x}
def loss(outputs, targets):
    return table["k"](outputs.mean())
""", "1.0", "3.0"),
    ("weak reference", """
class Options:
    pass
options = Options()
options.k = VALUE
held = weakref.ref(options)
def loss(outputs, targets):
    return held().k * outputs.mean()
""", "1.0", "3.0"),
    ("context variable", """
scale = contextvars.ContextVar("scale", default=VALUE)
def loss(outputs, targets):
    return scale.get() * outputs.mean()
""", "1.0", "3.0"),
    ("thread-local value", """
local = threading.local()
local.k = VALUE
def loss(outputs, targets):
    return local.k * outputs.mean()
""", "1.0", "3.0"),
    ("iterator", """
scales = itertools.repeat(VALUE)
def loss(outputs, targets):
    return next(scales) * outputs.mean()
""", "1.0", "3.0"),
    ("generator", """
scales = (VALUE for _ in range(9))
def loss(outputs, targets):
    return next(scales) * outputs.mean()
""", "1.0", "3.0"),
    ("polynomial of NumPy", """
bend = np.poly1d([VALUE, 0.0])
def loss(outputs, targets):
    return float(bend(1.0)) * outputs.mean()
""", "1.0", "3.0"),
    ("fraction", """
K = fractions.Fraction(VALUE)
def loss(outputs, targets):
    return float(K) * outputs.mean()
""", "1", "3"),
    ("seed of a subclass of random.Random", """
class Coin(random.Random):
    pass
coin = Coin(VALUE)
def loss(outputs, targets):
    return coin.random() * outputs.mean()
""", "1", "2"),
    ("generator of NumPy", """
noise = np.random.default_rng(VALUE)
def loss(outputs, targets):
    return noise.random() * outputs.mean()
""", "1", "2"),
    # Enums.
    ("mix-in of an enum", """
class Mixed:
    def k(self):
        return VALUE
class Kind(Mixed, enum.Enum):
    A = 1
def loss(outputs, targets):
    return Kind.A.k() * outputs.mean()
""", "1.0", "3.0"),
    ("constant of an enum", """
class Kind(enum.Enum):
    A = 1
    K = enum.nonmember(VALUE)
def loss(outputs, targets):
    return Kind.K * outputs.mean()
""", "1.0", "3.0"),
    ("property of an enum", """
class Kind(enum.Enum):
    A = 1
    @enum.property
    def k(self):
        return VALUE
def loss(outputs, targets):
    return Kind.A.k * outputs.mean()
""", "1.0", "3.0"),
    ("flag", """
class Kind(enum.IntFlag):
    A = VALUE
def loss(outputs, targets):
    return float(Kind.A) * outputs.mean()
""", "1", "4"),
    ("default argument of an enum's method", """
class Kind(enum.Enum):
    A = 1
    def k(self, by=VALUE):
        return by
loss = functools.partial(lambda outputs, targets, kind: kind.k() * outputs.mean(), kind=Kind.A)
""", "1.0", "3.0"),
    # Classes.
    ("method of a metaclass", """
class Meta(type):
    def k(cls):
        return VALUE
class Options(metaclass=Meta):
    pass
def loss(outputs, targets):
    return Options.k() * outputs.mean()
""", "1.0", "3.0"),
    ("descriptor", """
class Constant:
    def __get__(self, instance, owner):
        return VALUE
class Options:
    k = Constant()
def loss(outputs, targets):
    return Options().k * outputs.mean()
""", "1.0", "3.0"),
    ("partial method", """
class Options:
    def k(self, value):
        return value
    one = functools.partialmethod(k, VALUE)
def loss(outputs, targets):
    return Options().one() * outputs.mean()
""", "1.0", "3.0"),
    ("argument of a class", """
class Base:
    def __init_subclass__(cls, k):
        cls.k = k
class Options(Base, k=VALUE):
    pass
def loss(outputs, targets):
    return Options.k * outputs.mean()
""", "1.0", "3.0"),
    ("class of types.new_class", """
Options = types.new_class("Options", (), {}, lambda names: names.update(k=VALUE))
def loss(outputs, targets):
    return Options.k * outputs.mean()
""", "1.0", "3.0"),
    ("class of make_dataclass", """
Options = dataclasses.make_dataclass("Options", [("k", float, VALUE)])
def loss(outputs, targets):
    return Options().k * outputs.mean()
""", "1.0", "3.0"),
    ("default factory of a dataclass", """
@dataclasses.dataclass
class Options:
    k: float = dataclasses.field(default_factory=lambda: VALUE)
def loss(outputs, targets):
    return Options().k * outputs.mean()
""", "1.0", "3.0"),
    ("representation that code reads", """
class Options:
    def __repr__(self):
        return "VALUE"
def loss(outputs, targets):
    return float(repr(Options())) * outputs.mean()
""", "1.0", "3.0"),
    # What is changed in libraries, and settings of the process.
    ("method of a library class", """
before = nn.Linear.forward
nn.Linear.forward = lambda self, x: VALUE * before(self, x)
def make():
    return nn.Linear(4, 1)
""", "1.0", "3.0"),
    ("method of a library class's base", """
before = nn.modules.batchnorm._BatchNorm.forward
nn.modules.batchnorm._BatchNorm.forward = lambda self, x: VALUE * before(self, x)
def make():
    return nn.BatchNorm1d(4)
""", "1.0", "3.0"),
    ("descriptor put into a library class", """
before = nn.Linear.forward
class Patch:
    def __get__(self, instance, owner):
        return lambda x: VALUE * before(instance, x)
nn.Linear.forward = Patch()
def make():
    return nn.Linear(4, 1)
""", "1.0", "3.0"),
    ("function of a library that its layers use", """
before = F.relu
F.relu = lambda x, inplace=False: VALUE * before(x)
def make():
    return nn.ReLU()
""", "1.0", "3.0"),
    ("hook of all modules", """
nn.modules.module.register_module_forward_hook(lambda module, inputs, outputs: VALUE * outputs)
def make():
    return nn.Linear(4, 1)
""", "1.0", "3.0"),
    ("hook of all optimizers", """
from torch.optim.optimizer import register_optimizer_step_pre_hook
register_optimizer_step_pre_hook(lambda optimizer, *rest: print(VALUE))
def make():
    return nn.Linear(4, 1)
""", "1.0", "3.0"),
    ("default dtype", """
torch.set_default_dtype(torch.VALUE)
def loss(outputs, targets):
    return torch.rand(()) * outputs.mean()
""", "float32", "float64"),
    ("mode of torch functions", """
class Mode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, kinds, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        return VALUE * result if function is F.linear else result
mode = Mode()
mode.__enter__()
builtins.entered_mode = mode
def make():
    return nn.Linear(4, 1)
""", "1.0", "3.0"),
    ("name put among the builtins", """
builtins.own_scale = VALUE
def loss(outputs, targets):
    return own_scale * outputs.mean()
""", "1.0", "3.0"),
    ("builtin that was replaced", """
before = sum
builtins.sum = lambda values: VALUE * before(values)
def loss(outputs, targets):
    return sum(outputs)
""", "1.0", "3.0"),
    # Names that are found at run time.
    ("globals()", """
K = VALUE
def loss(outputs, targets):
    return globals()["K"] * outputs.mean()
""", "1.0", "3.0"),
    ("eval", """
K = VALUE
def loss(outputs, targets):
    return eval("K") * outputs.mean()
""", "1.0", "3.0"),
    ("sys.modules", """
K = VALUE
def loss(outputs, targets):
    return sys.modules[__name__].K * outputs.mean()
""", "1.0", "3.0"),
    ("environment variable", """
os.environ["OWN_SCALE"] = "VALUE"
def loss(outputs, targets):
    return float(os.environ["OWN_SCALE"]) * outputs.mean()
""", "1.0", "3.0"),
    ("operator in torch.ops", """
if not hasattr(torch.ops.surefoot_tests, "one"):
    torch.library.custom_op("surefoot_tests::one", lambda x: x * VALUE, mutates_args=(), schema="(Tensor x) -> Tensor")
def loss(outputs, targets):
    return torch.ops.surefoot_tests.one(outputs.mean())
""", "1.0", "3.0"),
    ("argument of the program", """
sys.argv[1:] = ["VALUE"]
def loss(outputs, targets):
    return float(sys.argv[1]) * outputs.mean()
""", "1.0", "3.0"),
]  # fmt: skip

# (name, files of a package, code): VALUE stands in the files.
IMPORTED = [
    (
        "import of a submodule, name of the package",
        {"pkg/__init__.py": "K = VALUE", "pkg/b.py": ""},
        """
def loss(outputs, targets):
    import pkg.b
    return pkg.K * outputs.mean()
""",
    ),
    (
        "import of a submodule, name of another one",
        {"pkg/__init__.py": "from . import c", "pkg/b.py": "", "pkg/c.py": "K = VALUE"},
        """
def loss(outputs, targets):
    import pkg.b
    return pkg.c.K * outputs.mean()
""",
    ),
    (
        "the same outside of the function",
        {"pkg/__init__.py": "from . import c", "pkg/b.py": "", "pkg/c.py": "K = VALUE"},
        """
import pkg.b
def loss(outputs, targets):
    return pkg.c.K * outputs.mean()
""",
    ),
    (
        "getattr of a module",
        {"pkg/__init__.py": "K = VALUE"},
        """
import pkg
def loss(outputs, targets):
    return getattr(pkg, "K") * outputs.mean()
""",
    ),
    (
        "import_module",
        {"pkg/__init__.py": "K = VALUE"},
        """
def loss(outputs, targets):
    return importlib.import_module("pkg").K * outputs.mean()
""",
    ),
    (
        "import of all names",
        {"pkg/__init__.py": "def f(x):\n    return VALUE * x"},
        """
from pkg import *
def loss(outputs, targets):
    return f(outputs.mean())
""",
    ),
    (
        "module with __getattr__",
        {"pkg/__init__.py": "def __getattr__(name):\n    return VALUE"},
        """
import pkg
def loss(outputs, targets):
    return pkg.K * outputs.mean()
""",
    ),
    (
        "module under another name",
        {"pkg/__init__.py": "from pkg import b", "pkg/b.py": "K = VALUE"},
        """
import pkg as other
def loss(outputs, targets):
    return other.b.K * outputs.mean()
""",
    ),
]


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
    ("annotation of an argument", "code", "def loss(outputs, targets,", "def loss(outputs: torch.Tensor, targets,"),
    ("annotation of a local", "code", "    net = Net()", "    net: Net = Net()"),
    ("comment at the end", "code", "momentum=0.5)", "momentum=0.5)  # as always"),
    ("quotes", "code", 'OPTIONS["drop"]', "OPTIONS['drop']"),
    ("number in other digits", "code", "RATE = 0.25", "RATE = 25e-2"),
    ("trailing comma", "code", "LAYERS = [8, 4]", "LAYERS = [8, 4,]"),
    ("docstring of a loss", "code", "smooth=0.1):", 'smooth=0.1):\n    """Cross entropy."""'),
    ("docstring of a class", "code", "class Base(nn.Module):", 'class Base(nn.Module):\n    """A base."""\n'),
    ("docstring of a module", "helpers", "\nimport numpy", '"""Helpers."""\nimport numpy'),
    ("global that nobody reads", "code", "RATE = 0.25", "RATE = 0.25\nOTHER = 3"),
    ("value of a global that nobody reads", "helpers", "def unused", "UNREAD = 7\n\n\ndef unused"),
    ("class that nobody uses", "helpers", "def unused", "class Unused:\n    a = 1\n\n\ndef unused"),
    ("local of a closure", "code", "def inner(*args):\n", "def inner(*args):\n        k = 1\n        del k\n"),
    ("pass", "code", "    return total\n", "    pass\n    return total\n"),
    ("import under a name that nobody reads", "code", "import math\n", "import math as mathematics\n"),
    ("main guard", "helpers", "def unused", 'if __name__ == "__main__":\n    print("hello")\n\n\ndef unused'),
    ("list of public names", "helpers", "SCALE = 2.0", '__all__ = ["SCALE"]\nSCALE = 2.0'),
    ("folded constant", "code", "return 7.0", "return 3.5 + 3.5"),
    ("string in two parts", "code", '"drop": 0.1', '"dr" "op": 0.1'),
    ("name of a comprehension", "helpers", "def unused", "PAIRS = [a for a in range(3)]\n\n\ndef unused"),
    ("type alias", "code", "RATE = 0.25", "Number = int | float\nRATE = 0.25"),
    ("order of imports", "code", "import numpy as np\nimport scipy.sparse", "import scipy.sparse\nimport numpy as np"),
    ("order of functions", "helpers", "\n\ndef unused(x):\n    return x\n", ""),
    ("assertion that is true", "code", "def make():", "assert RATE > 0\n\n\ndef make():"),
    ("text that is printed", "code", "SETTINGS = Settings()", 'SETTINGS = Settings()\nprint("made", end="")'),
]  # fmt: skip
