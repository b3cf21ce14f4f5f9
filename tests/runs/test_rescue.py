"""Single bits that flip on the disk: an error with a name, or the right numbers, and never others."""

import random
import shutil

import numpy as np
import pytest
import torch
from tests.runs.network_cases import make_study
from tests.runs.test_bench import do, stopped_in_the_middle

from surefoot.problems import LinearRegression
from surefoot.runs._store import Store
from surefoot.search import ProblemRun, SearchError, tune
from surefoot.study import CheckpointError, Result, StoreError, Study, rescue


def flip(path, bit):
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def spread(path, count, seed):
    """Bits over the whole file, one in each of so many parts of equal size."""
    size, draw = 8 * path.stat().st_size, random.Random(seed)
    return [draw.randrange(k * size // count, (k + 1) * size // count) for k in range(count)]


# The store.


def sweep():
    return Study(
        "linear-regression",
        methods=["sgd", "sps"],
        lrs=[0.01, 0.1, 10.0],
        seeds=2,
        epochs=4,
        batch_size=5,
        distance=1.0,
    )


def content(path):
    """All numbers of a file: settings, traces and facts."""
    result = Result.load(path)
    data = result.dataset
    numbers = {name: data[name].values.tobytes() for name in data.data_vars if data[name].dtype.kind != "U"}
    return result.settings, numbers, data.status.values.tolist(), result.optimum()


def rows(path):
    """The runs of the one study of a file, by their keys."""
    with Store.read(path) as store:
        contexts = {entry.context for entry in store.studies()} or {sweep()._context()}
        return {
            run.key: ((*run[1:3], *run[5:]), *(b"".join(part.values()) for part in (run.steps, run.epochs)))
            for context in contexts
            for run in store.traces(context)
        }


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    path = tmp_path_factory.mktemp("sound") / "s.db"
    sweep().run(path)
    return path


def check_flipped_store(sound, folder, bit):
    """None if the file gave what it had given before; if the flip was found, how many runs could not be saved."""
    path, new = folder / "s.db", folder / "new.db"
    shutil.copy(sound, path)
    flip(path, bit)
    before = path.read_bytes()
    try:
        found, message = content(path), None
    except StoreError as error:
        found, message = None, str(error)
    if message is None:
        assert found == content(sound)
        path.unlink()
        return None
    assert str(path) in message
    assert path.read_bytes() == before, "a damaged file was changed"
    saved = rescue(path, new)
    kept, all_rows = rows(new), rows(sound)
    assert saved.runs == len(kept)
    assert kept.items() <= all_rows.items()
    new.unlink()
    path.unlink()
    return len(all_rows) - len(kept)


@pytest.mark.parametrize("part", range(4))
def test_a_flipped_bit_of_a_store_gives_no_wrong_number(sound, tmp_path, part):
    lost = [check_flipped_store(sound, tmp_path, bit) for bit in spread(sound, 40, part)[part::4]]
    assert any(count is not None for count in lost)
    assert max((count for count in lost if count is not None), default=0) <= 1  # the damaged one itself


def test_a_study_does_not_go_on_with_a_damaged_store(sound, tmp_path):
    expected = content(sound)
    for bit in spread(sound, 12, 99):
        path = tmp_path / f"{bit}.db"
        shutil.copy(sound, path)
        flip(path, bit)
        try:
            data = sweep().run(path).dataset
        except StoreError:
            continue
        numbers = {name: data[name].values.tobytes() for name in data.data_vars if data[name].dtype.kind != "U"}
        assert numbers == expected[1]


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("runs", "last_loss", 0.125),
        ("runs", "best_loss", None),
        ("runs", "status", "finished!"),
        ("runs", "diverged_at", 3),
        ("runs", "violations", 7),
        ("layouts", "layout", '{"dtype": "<f8", "steps": [["loss"], [1]], "epochs": [[], []]}'),
        ("studies", "created", "yesterday"),
        ("studies", "settings", '{"problem": {"fingerprint": ""}}'),
        ("facts", "value", "0.5"),
        ("contexts", "hash", "0"),
    ],
)
def test_every_row_is_covered(sound, tmp_path, table, column, value):
    """Changed through SQLite itself, so that only the seal can tell."""
    import sqlite3

    path = tmp_path / "s.db"
    shutil.copy(sound, path)
    connection = sqlite3.connect(path)
    connection.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = 1", (value,))
    connection.commit()
    connection.close()
    with pytest.raises(StoreError, match=r"s\.db: .*damaged.*rescue"):
        content(path)


def test_what_is_sound_is_saved_and_the_rest_computed_anew(sound, tmp_path, assert_same_bits):
    path, new = tmp_path / "s.db", tmp_path / "new.db"
    shutil.copy(sound, path)
    trace = next(iter(rows(sound).values()))[1]
    flip(path, 8 * (path.read_bytes().index(trace[:64]) + 5) + 3)
    with pytest.raises(StoreError, match="rescue"):
        content(path)
    saved = rescue(path, new)
    assert (saved.runs, saved.studies, len(saved.lost)) == (11, 1, 1)
    assert sweep().plan(new).todo == 1
    assert_same_bits(sweep().run(new).dataset, sweep().run().dataset)


# Checkpoints.


def check_flipped_checkpoint(study, folder, bit):
    path = folder / "checkpoint"
    (whole,) = folder.glob("*.run")
    shutil.copy(whole, path)
    flip(whole, bit)
    try:
        with pytest.raises(CheckpointError, match=f"{whole.name} is damaged .*; delete it, and its run"):
            do(study, folder)
    finally:
        shutil.copy(path, whole)


def test_a_flipped_bit_of_a_checkpoint_is_found(tmp_path):
    study = make_study()
    path = stopped_in_the_middle(study, tmp_path)
    for bit in spread(path, 12, 0):
        check_flipped_checkpoint(study, tmp_path, bit)


def test_the_checkpoint_of_a_best_bound_is_not_believed_when_damaged(tmp_path):
    from surefoot._base.states import seal_of
    from surefoot.runs._best_bound import told_best

    path = tmp_path / "best"
    path.write_bytes(b"0.125 " + seal_of(b"0.125"))
    assert told_best(str(path)) == 0.125
    for bit in range(8 * path.stat().st_size):
        flip(path, bit)
        assert told_best(str(path)) == np.inf
        flip(path, bit)


# Searches.

LRS = np.geomspace(1e-3, 1e2, 5)


def search(folder, **options):
    return tune(ProblemRun(LinearRegression(), "sgd", batch_size=5), LRS, 60, store=folder, **options)


def torch_search(folder):
    from surefoot.search import TorchRun

    inputs = torch.randn(16, 3, generator=torch.Generator().manual_seed(0))
    runs = TorchRun(
        lambda: torch.nn.Linear(3, 1),
        lambda seed: inputs.split(4),
        lambda model, batch: (model(batch) - batch.sum(1, keepdim=True)).square().mean(),
        torch.optim.SGD,
    )
    return tune(runs, LRS, 30, store=folder)


def answer(found):
    return found.lr, found.loss, str(found.table), found.run.distance()


def files(folder):
    return sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())


def check_flipped_search(run, whole, folder, name, bit):
    """All that another search in this folder would read."""
    shutil.copytree(whole, folder)
    flip(folder / name, bit)
    try:
        found, message = answer(run(folder)), None
    except (SearchError, StoreError) as error:
        found, message = None, str(error)
    finally:
        shutil.rmtree(folder)
    assert found == answer(run(whole)) if message is None else str(folder / name) in message
    return message is not None


@pytest.mark.parametrize("run", [search, torch_search])
def test_a_flipped_bit_of_a_search_gives_no_wrong_number(tmp_path, run):
    whole = tmp_path / "whole"
    run(whole)
    found = 0
    for name in files(whole):
        for bit in spread(whole / name, 8 if name.suffix == ".db" else 1, 1):
            found += check_flipped_search(run, whole, tmp_path / "flipped", name, bit)
    assert found


@pytest.mark.slow
def test_five_hundred_flipped_bits_give_no_wrong_number(sound, tmp_path):
    """300 of a store, 100 of checkpoints, 100 of searches, over every region of each file."""
    lost = [check_flipped_store(sound, tmp_path, bit) for bit in spread(sound, 300, 7)]
    found = [count for count in lost if count is not None]
    study = make_study()
    path = stopped_in_the_middle(study, tmp_path / "runs")
    for bit in spread(path, 100, 7):
        check_flipped_checkpoint(study, tmp_path / "runs", bit)
    hits = 0
    for number, run in enumerate((search, torch_search)):
        whole = tmp_path / f"whole{number}"
        run(whole)
        for k, name in enumerate(np.resize(np.array(files(whole), object), 50)):
            bit = random.Random(k).randrange(8 * (whole / name).stat().st_size)
            hits += check_flipped_search(run, whole, tmp_path / "flipped", name, bit)
    total = len(rows(sound))
    print(
        f"store: {len(found)} of 300 found, {sum(found)} of {total * len(found)} runs not saved; search: {hits} of 100"
    )
    assert max(found) <= 1  # the damaged one itself


@pytest.mark.parametrize("name", ["a#b", "a?b", "a%41b"])
def test_any_folder_will_do(tmp_path, name):
    (tmp_path / name).mkdir()
    Study("linear-regression", methods="sgd", lrs=[0.1], seeds=1, epochs=1, batch_size=5).run(tmp_path / "s.db")
    rescue(tmp_path / "s.db", tmp_path / name / "new.db")
    assert Result.load(tmp_path / name / "new.db").lrs == [0.1]
