"""Results on disk: they come back as they were, or count as missing."""

import dataclasses
import json

import pytest

from surefoot import pep
from surefoot.pep import _cache
from surefoot.pep._cache import CACHE_VARIABLE, Cache, folder

NGN = ("one-step", {"method": "ngn", "lr": 1.0})


@pytest.fixture(scope="module")
def result():
    return pep.one_step_index(method="ngn", lr=1.0)


def test_a_stored_result_comes_back_as_it_was(tmp_path, result):
    cache = Cache(tmp_path)
    cache.store(NGN[1], result)
    assert cache.load(*NGN) == result


def test_verify_takes_what_is_stored(tmp_path, result):
    changed = dataclasses.replace(result, solver="nobody")
    Cache(tmp_path).store(NGN[1], changed)
    assert pep.verify([NGN], cache=tmp_path, progress=False) == [pep.Row(*NGN, changed)]


def test_verify_stores_what_it_solved(tmp_path):
    (found,) = pep.verify([NGN], cache=tmp_path, progress=False)
    assert Cache(tmp_path).load(*NGN) == found.result


def test_other_parameters_have_another_result(tmp_path, result):
    cache = Cache(tmp_path)
    cache.store(NGN[1], result)
    assert cache.load("one-step", {"method": "ngn", "lr": 1.5}) is None


def test_other_versions_have_another_result(tmp_path, result, monkeypatch):
    Cache(tmp_path).store(NGN[1], result)
    monkeypatch.setattr(_cache, "versions", lambda: {"PEPit": "0.0"})
    assert Cache(tmp_path).load(*NGN) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"worst_case": 1.0}'])
def test_a_damaged_file_counts_as_missing(tmp_path, result, text):
    cache = Cache(tmp_path)
    cache.store(NGN[1], result)
    (path,) = tmp_path.iterdir()
    path.write_text(text)
    assert cache.load(*NGN) is None


def test_an_inaccurate_result_in_a_file_counts_as_missing(tmp_path, result):
    cache = Cache(tmp_path)
    cache.store(NGN[1], result)
    (path,) = tmp_path.iterdir()
    path.write_text(json.dumps({**json.loads(path.read_text()), "status": "optimal_inaccurate"}))
    assert cache.load(*NGN) is None


def test_storing_leaves_nothing_but_the_result(tmp_path, result):
    cache = Cache(tmp_path / "new" / "folder")
    cache.store(NGN[1], result)
    cache.store(NGN[1], result)
    assert [path.suffix for path in (tmp_path / "new" / "folder").iterdir()] == [".json"]


def test_a_folder_that_cannot_be_made_costs_only_the_cache(tmp_path, result):
    (tmp_path / "file").write_text("")
    cache = Cache(tmp_path / "file" / "below")
    cache.store(NGN[1], result)
    assert cache.load(*NGN) is None


def test_the_default_folder_is_the_users_cache(monkeypatch, tmp_path):
    monkeypatch.delenv(CACHE_VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert folder() == folder(True) == tmp_path / "surefoot" / "pep"


def test_the_variable_names_a_folder(monkeypatch, tmp_path):
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    assert folder() == tmp_path


@pytest.mark.parametrize("value", ["off", "OFF", " off "])
def test_the_variable_turns_the_cache_off(monkeypatch, value):
    monkeypatch.setenv(CACHE_VARIABLE, value)
    assert folder() is None
