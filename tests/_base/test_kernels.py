"""The compiled library is built on request alone, tried before it is used, and never another machine's."""

from __future__ import annotations

import warnings
from ctypes import CDLL
from pathlib import Path

import pytest
import torch

import surefoot.optim as sfo
from surefoot._base import kernels
from surefoot.optim import _sums, native


@pytest.fixture
def forgotten():
    """Nobody remembers whether there was a library, before the test and after it."""
    cached = (kernels.library, native.library)
    for function in cached:
        function.cache_clear()
    yield
    for function in cached:
        function.cache_clear()


def test_nothing_is_compiled_unasked(forgotten: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    x = torch.nn.Parameter(torch.ones(3))
    x.grad = torch.ones(3)
    sfo.NGN([x]).step(loss=1.0)
    assert native.library() is None
    assert not list(tmp_path.iterdir())


def test_what_was_built_is_used(
    forgotten: None, compiled_library: CDLL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    assert native.build() == kernels.place()
    assert native.library() is not None


def test_another_source_or_machine_has_another_name(compiled_library: CDLL, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {kernels.place()}
    here = (Path(__file__),)
    for what, other in (("_FLAGS", (*kernels._FLAGS, "-g")), ("_SOURCES", here)):
        with monkeypatch.context() as patch:
            patch.setattr(kernels, what, other)
            names.add(kernels.place())
    with monkeypatch.context() as patch:
        patch.setattr(kernels.platform, "system", lambda: "Elsewhere")
        names.add(kernels.place())
    assert len(names) == 4
    with monkeypatch.context() as patch:
        patch.setattr(kernels.platform, "machine", lambda: "vax")
        assert kernels.place() is None
        with pytest.raises(RuntimeError, match="not vax"):
            native.build()


def test_a_broken_file_is_told_and_not_used(
    forgotten: None, compiled_library: CDLL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    place = kernels.place()
    assert place is not None
    place.parent.mkdir(parents=True)
    place.write_bytes(b"no library")
    with pytest.warns(UserWarning, match="surefoot build"):
        assert native.library() is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert _sums.sum_sq([torch.ones(5)]) == 5  # it says so once


@pytest.mark.parametrize(
    ("compiler", "message"),
    [("no-such-compiler", "CC must name a C compiler"), ("false", "has failed"), ("", "no C comp")],
)
def test_what_keeps_it_from_being_built(
    compiler: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kernels.place() is None:
        pytest.skip("the library is not written for this machine")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CC", compiler)
    monkeypatch.setattr(kernels.shutil, "which", lambda name: None)
    with pytest.raises(RuntimeError, match=message):
        native.build()
    assert not list(tmp_path.rglob("*.so"))


def test_a_library_that_sums_wrongly_is_not_kept(
    compiled_library: CDLL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = tmp_path / "wrong.c"
    wrong.write_text("void surefoot_pass(void) {}\n")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(kernels, "_SOURCES", (wrong,))
    with pytest.raises(RuntimeError, match=r"sum up to 0\.0"):
        native.build()
    assert not list(tmp_path.rglob("*.so"))
