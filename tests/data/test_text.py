import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.data import characters

LETTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\r")  # reading turns \r into a new line


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("text") / "mine.txt"


@given(st.text(LETTERS, min_size=2, max_size=400))
def test_both_parts_together_are_the_text(file, content):
    file.write_text(content, "utf-8", newline="")
    found = characters(file, validation=0.25)
    assert "".join(found.vocabulary[code] for part in (found.train, found.validation) for code in part) == content
    assert found.vocabulary == "".join(sorted(set(content)))


@pytest.mark.parametrize(("validation", "rows"), [(0.0, 0), (0.1, 10), (0.5, 50), (0.99, 99)])
def test_share_for_validation(tmp_path, validation, rows):
    (tmp_path / "mine").write_text("ab" * 50)
    found = characters(tmp_path / "mine", validation=validation)
    assert (len(found.train), len(found.validation)) == (100 - rows, rows)


def test_file_in_another_encoding(tmp_path):
    (tmp_path / "mine").write_bytes("naïve".encode("latin-1"))
    with pytest.raises(ValueError, match=r"mine is not text in UTF-8: .*byte 0xef"):
        characters(tmp_path / "mine")


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"path must be a text file, got '.*nowhere', where there is none"):
        characters(tmp_path / "nowhere")


@pytest.mark.parametrize("validation", [-0.1, 1.0, float("nan"), "a"])
def test_share_out_of_range(validation):
    with pytest.raises(ValueError, match=rf"validation must be a number in \[0, 1\), got {validation!r}"):
        characters(validation=validation)


def test_mark_of_utf_8_at_the_start_is_no_character(tmp_path):
    (tmp_path / "mine").write_bytes(b"\xef\xbb\xbfabc")
    assert characters(tmp_path / "mine").vocabulary == "abc"


def test_share_that_leaves_nothing_for_training(tmp_path):
    (tmp_path / "mine").write_text("abc")
    with pytest.raises(ValueError, match=r"validation must leave some of the 3 characters for training, got 0\.9"):
        characters(tmp_path / "mine", validation=0.9)
