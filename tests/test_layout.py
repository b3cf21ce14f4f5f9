"""Tests are found where their source is: ``tests/ROOM/test_x.py`` is about ``src/surefoot/ROOM/x.py`` or ``_x.py``."""

from pathlib import Path

TESTS = Path(__file__).resolve().parent
SOURCE = TESTS.parent / "src" / "surefoot"
ELSEWHERE = {
    "integrations/test_heard_losses.py": "optimizers of ours inside of the loops of three frameworks",
    "monitor/test_ddp.py": "the whole monitor, on two ranks",
    "optim/test_amp.py": "the whole step, below torch's scaler and in low precision",
    "optim/test_compile.py": "the whole step, compiled by torch",
    "optim/test_peers.py": "optimizers of other people that ours must equal",
    "optim/test_sharded.py": "the whole step, on two ranks that share the parameters",
    "search/test_networks.py": "searches, studies and their one store, on networks",
    "study/test_many_kills.py": "studies and searches that are killed at any moment",
    "watch/test_frameworks.py": "the whole watch, on scripts of several frameworks",
}
"""Tests of several source files at once, and what they are about."""


def is_about_a_source_file(test: Path) -> bool:
    """Whether the room of a test has a module, or a folder, of the test's name."""
    room = SOURCE / test.parent
    name = test.stem.removeprefix("test_")
    return any(place.exists() for place in (room / f"{name}.py", room / f"_{name}.py", room / name))


def in_rooms() -> list[Path]:
    found = sorted(path.relative_to(TESTS) for path in TESTS.glob("*/**/test_*.py"))
    return [path for path in found if (SOURCE / path.parts[0]).is_dir()]


def test_every_test_file_has_the_name_of_a_source_file():
    lost = [str(test) for test in in_rooms() if not is_about_a_source_file(test)]
    assert lost == sorted(ELSEWHERE), "name a test file after the source file that it is about, or say what it is about"


def test_every_room_has_tests():
    rooms = {path.parent.name for path in SOURCE.glob("[a-z]*/__init__.py")}
    assert rooms == {test.parts[0] for test in in_rooms()} - {"_base"}
