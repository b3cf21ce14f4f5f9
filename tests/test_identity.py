"""What tells user-written code apart, and that nothing else does."""

import base64
import hashlib
import importlib
import logging
import math
import os
import random
import subprocess
import sys
import threading
import types
from collections import deque
from dataclasses import dataclass
from datetime import date
from functools import partial, singledispatch, update_wrapper

import numpy as np
import pydantic
import pytest
import torch

from surefoot._identity import _packages, digest, identify


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda x: x + 1, lambda x: x + 2),
        (lambda x, y=1: x, lambda x, y=2: x),
        (lambda x: np.sin(x), lambda x: np.cos(x)),
        (partial(max, 1), partial(max, 2)),
        (partial(max, key=abs), partial(min, key=abs)),
        ({"a": 1}, {"a": 2}),
        ([1, 2], [2, 1]),
        ([[1], 2], [[1, 2]]),
        (np.arange(5000), np.arange(5000)[::-1].copy()),
        (np.zeros(2, np.float32), np.zeros(2)),
        (torch.tensor([1.0]), torch.tensor([1.0 + 1e-6])),
        (torch.zeros(3), torch.zeros(3, dtype=torch.bfloat16)),
    ],
)
def test_what_differs_has_another_hash(one, other):
    assert digest(one) != digest(other)


def test_what_a_function_says_about_itself_does_not_count():
    def one(x):
        """First words."""
        return x

    def other(x):
        """Other words."""
        return x

    assert digest(one) == digest(other)


def test_the_order_of_keys_counts_because_code_may_go_through_them():
    assert digest({"a": 1, "b": 2}) != digest({"b": 2, "a": 1})


def test_code_that_refers_to_itself():
    class Node:
        def __init__(self):
            super().__init__()  # the function closes over its class
            self.parent = self

    def countdown(n):
        return 0 if n == 0 else countdown(n - 1)

    assert digest(Node, Node(), countdown) == digest(Node, Node(), countdown)


@dataclass
class Config:
    activation: object


def test_addresses_in_memory_do_not_count():
    def make():
        return Config(lambda x: x)  # whose text names an address

    assert digest(make()) == digest(make())


def test_another_process_finds_the_same_hash():
    program = "from surefoot._identity import digest; print(digest({'b': 1, 'a': {2.5}}, lambda x: x + 1, max))"
    found = [subprocess.check_output([sys.executable, "-c", program], text=True) for _ in range(2)]
    assert found[0] == found[1]


def test_defaults_of_pydantic_models_count():
    def make(default):
        class Options(pydantic.BaseModel):
            width: int = default

        return Options

    assert digest(make(1)) == digest(make(1))
    assert digest(make(1)) != digest(make(2))


def test_a_function_with_several_forms_counts_with_all_of_them():
    def make(number):
        @singledispatch
        def form(value):
            return 0

        form.register(int, lambda value: value + number)
        return form

    assert digest(make(1)) == digest(make(1))
    assert digest(make(1)) != digest(make(2))


def test_locks_and_logs_do_not_count():
    class Holder:
        def __init__(self):
            self.lock, self.log = threading.Lock(), logging.getLogger("mine")

    assert digest(Holder()) == digest(Holder())
    assert identify(Holder()).unknown == ()


def test_what_cannot_be_identified_is_told():
    with open(__file__) as file:
        assert identify([file]).unknown == ("the TextIOWrapper",)
    assert identify({"rows": (i for i in range(3))}).unknown == ("the generator",)


def test_what_an_object_tells_about_itself_is_asked():
    class Reader:
        def __init__(self, word):
            self.word, self.file = word, open(__file__)  # noqa: SIM115
            self.file.close()

        def fingerprint(self):
            return self.word

    assert digest(Reader("a")) == digest(Reader("a"))
    assert digest(Reader("a")) != digest(Reader("b"))
    assert identify(Reader("a")).unknown == ()


class Counted:
    """A decorator that is an object."""

    def __init__(self, function, times=1):
        update_wrapper(self, function)
        self.function, self.times = function, times

    def __call__(self, x):
        return self.times * self.function(x)


class Rate(float):
    pass


class Queue(deque):
    pass


class Day(date):
    pass


class Names(set):
    pass


class Grid(np.ndarray):
    pass


def _with(value, **attributes):
    vars(value).update(attributes)
    return value


@pytest.mark.parametrize(
    "make",
    [
        lambda k: Counted([abs, lambda x: 3 * x][k]),
        lambda k: Counted(abs, times=k),
        Rate,
        lambda k: Queue([k]),
        lambda k: Day(2020 + k, 1, 1),
        lambda k: _with(Names("a"), k=k),
        lambda k: np.ma.array([1.0, 2.0], mask=[k, 1 - k]),
        lambda k: _with(np.ones(2).view(Grid), k=k),
    ],
    ids=["decorated", "times", "float", "deque", "date", "set", "mask", "array"],
)
def test_what_unusual_objects_hold_counts(make):
    assert digest(make(0)) == digest(make(0)) != digest(make(1))


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
def test_compiled_functions_count_by_what_they_were_made_of():
    assert identify(np.frompyfunc(lambda x: x, 1, 1)).unknown
    assert not identify(np.add).unknown

    def double(x):
        return 2.0 * x

    def triple(x):
        return 3.0 * x

    assert digest(torch.jit.script(double)) != digest(torch.jit.script(triple))


def test_compiled_code_of_one_s_own_counts_by_the_file_it_is_in(tmp_path, monkeypatch):
    module = types.ModuleType("mine_of_c")
    monkeypatch.setitem(sys.modules, "mine_of_c", module)
    monkeypatch.setattr(math.sin, "__module__", "mine_of_c")  # any function of C will do
    assert identify(lambda x: math.sin(x)).unknown
    module.__file__ = str(tmp_path / "mine_of_c.so")
    (tmp_path / "mine_of_c.so").write_bytes(b"one")
    one = identify(lambda x: math.sin(x))
    assert not one.unknown
    (tmp_path / "mine_of_c.so").write_bytes(b"other")
    assert digest(lambda x: math.sin(x)) != one.digest


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Writes a package among the installed ones, and gives the identity of its function."""
    folder = tmp_path / "site-packages"
    about = folder / "mylab-1.0.dist-info"
    about.mkdir(parents=True)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def identity(code, *, record=None, url=False, later=0.0):
        (folder / "mylab.py").write_text(code)
        (about / "METADATA").write_text("Metadata-Version: 2.1\nName: mylab\nVersion: 1.0\n")
        if record is not None:
            known = base64.urlsafe_b64encode(hashlib.sha256(record.encode()).digest()).rstrip(b"=").decode()
            (about / "RECORD").write_text(f"mylab.py,sha256={known},{len(record)}\nmylab-1.0.dist-info/RECORD,,\n")
            moment = (about / "RECORD").stat().st_mtime + later
            os.utime(folder / "mylab.py", (moment, moment))
        if url:
            (about / "direct_url.json").write_text('{"url": "file:///mylab", "dir_info": {}}')
        sys.modules.pop("mylab", None)
        for cached in (_packages.version_of, _packages._is_package):
            cached.cache_clear()
        importlib.invalidate_caches()
        return identify(importlib.import_module("mylab").loss)

    yield identity
    sys.modules.pop("mylab", None)
    _packages.version_of.cache_clear()


ONE, OTHER = "def loss(x):\n    return x\n", "def loss(x):\n    return 2 * x\n"


def test_a_package_of_an_index_counts_by_its_version(installed):
    assert installed(ONE, record=ONE).packages == {"mylab": "1.0"}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({}, {}),
        ({"record": ONE, "url": True}, {"record": OTHER, "url": True}),
        ({"record": ONE}, {"record": ONE, "later": 60.0}),
    ],
    ids=["without a record", "installed from a folder again", "changed where it is installed"],
)
def test_an_installed_package_that_changes_without_a_version_is_seen(installed, one, other):
    assert installed(ONE, **one).digest != installed(OTHER, **other).digest


def test_the_generators_of_the_process_do_not_count():
    """Every run seeds them by itself."""
    before = digest(random.random, np.random.normal)
    random.random(), np.random.normal()  # noqa: NPY002
    assert digest(random.random, np.random.normal) == before
