"""Tokens and windows, Shakespeare's speakers and names, from small files."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulations.learning.data import DataError, DataFolder, DataKind, DataProblem
from simulations.learning.data.catalog import NAMES, SHAKESPEARE, TINY_SHAKESPEARE
from simulations.learning.data.names import LANGUAGES, load_names, without_accents
from simulations.learning.data.shakespeare import (
    load_shakespeare,
    load_tinyshakespeare,
    read_moby_lines,
    read_tiny_lines,
)
from simulations.learning.data.text import (
    ALPHABET,
    PAD,
    UNKNOWN,
    VOCABULARY,
    Tokens,
    encode_text,
    next_token_windows,
    pad_left,
)


def decode_text(tokens: Tokens) -> str:
    """Return the characters: nothing for PAD, U+FFFD for UNKNOWN."""
    characters = ["", "\ufffd", *ALPHABET]
    return "".join(characters[token] for token in tokens)


def write(root: Path, path: str, text: str, *, encoding: str = "utf-8") -> DataFolder:
    """Write a text file, packed if its name says so."""
    blob = text.encode(encoding)
    (root / path).parent.mkdir(exist_ok=True)
    (root / path).write_bytes(gzip.compress(blob) if path.endswith(".gz") else blob)
    return DataFolder(root, check=False)


def plays(root: Path, *rows: str) -> DataFolder:
    """Write a file of lines."""
    header = "play,act,scene,speech,speaker,line"
    return write(root, SHAKESPEARE.path, "\n".join((header, *rows, "")))


def test_the_alphabet_is_fixed() -> None:
    assert VOCABULARY == 82 and len(set(ALPHABET)) == 80
    assert encode_text("\n a").tolist() == [2, 3, 30]
    assert encode_text("é€😀\t\x7f").tolist() == [UNKNOWN] * 5


@given(st.text(alphabet=ALPHABET))
def test_text_of_the_alphabet_comes_back(text: str) -> None:
    tokens = encode_text(text)
    assert tokens.dtype == np.int64 and decode_text(tokens) == text


@given(st.text())
def test_every_character_is_one_token(text: str) -> None:
    tokens = encode_text(text)
    assert len(tokens) == len(text)
    assert ((tokens > PAD) & (tokens < VOCABULARY)).all()


def test_padding_is_on_the_left() -> None:
    assert pad_left(encode_text("ab"), 4).tolist() == [PAD, PAD, *encode_text("ab")]
    assert pad_left(encode_text("abc"), 2).tolist() == encode_text("ab").tolist()
    assert decode_text(pad_left(encode_text("é"), 3)) == "\ufffd"


@given(count=st.integers(0, 60), length=st.integers(1, 12), stride=st.integers(1, 9))
def test_windows_are_what_comes_before_each_target(count: int, length: int, stride: int) -> None:
    tokens = np.arange(2, 2 + count)
    contexts, targets = next_token_windows(tokens, length, stride)
    assert contexts.shape == (len(targets), length)
    expected = 1 + (count - 1 - min(length, count - 1)) // stride if count >= 2 else 0
    assert len(targets) == expected
    for number, (context, target) in enumerate(zip(contexts, targets, strict=True)):
        place = min(length, count - 1) + number * stride
        assert target == tokens[place]
        assert context.tolist() == pad_left(tokens[max(0, place - length) : place], length).tolist()


@pytest.mark.parametrize(("length", "stride"), [(0, 1), (1, 0)])
def test_windows_need_a_length_and_a_stride(length: int, stride: int) -> None:
    with pytest.raises(ValueError, match="length and stride must be at least 1"):
        next_token_windows(np.arange(5), length, stride)


def test_clients_are_single_roles_of_a_play(tmp_path: Path) -> None:
    folder = plays(
        tmp_path,
        "hamlet,1,1,1,Hamlet,one",
        "hamlet,1,1,2,HAMLET,two",
        "hamlet,1,1,3,ALL,no",
        "hamlet,1,1,3,All the Lords,no",
        "hamlet,1,1,3,Both,no",
        "hamlet,1,1,3,ENSEMBLE,no",
        'hamlet,1,1,4,HAMLET & HORATIO,"no, no"',
        'hamlet,1,1,4,"Senators, &C",no',
        "hamlet,1,1,5,,no",
        'macbeth,1,1,1,HAMLET,"elsewhere, ""he"" says"',
        "macbeth,1,1,1,ALLAN,a person",
    )
    assert read_moby_lines(folder) == {
        ("hamlet", "HAMLET"): ["one", "two"],
        ("macbeth", "HAMLET"): ['elsewhere, "he" says'],
        ("macbeth", "ALLAN"): ["a person"],
    }


def test_the_last_lines_are_for_testing_and_nothing_reaches_across(tmp_path: Path) -> None:
    rows = [f"hamlet,1,1,{i},HAMLET,{'abcdefghij'[i] * 12}" for i in range(10)]
    folder = plays(tmp_path, *rows, "hamlet,1,1,1,GHOST,x", "hamlet,1,1,1,GHOST,yz")
    data = load_shakespeare(folder, length=6, stride=1)
    assert (data.kind, data.vocabulary, data.classes) == (DataKind.TEXT, VOCABULARY, VOCABULARY)
    train, test = (
        {
            owner: set("".join(map(decode_text, split.inputs[split.owners == owner])))
            for owner in (0, 1)
        }
        for split in (data.train, data.test)
    )
    assert train == {0: set("abcdefgh\n"), 1: set("x")}
    assert test == {0: set("ij\n"), 1: set("yz")}
    assert decode_text(data.train.labels[:8]) == "aaaaaa\nb"
    # The ghost's two characters of training text give one example with a padded context.
    assert data.train.inputs[-1].tolist() == pad_left(encode_text("x"), 6).tolist()
    assert decode_text(data.train.labels[-1:]) == "\n"


def test_speakers_of_few_lines_are_left_out(tmp_path: Path) -> None:
    rows = ["p,1,1,1,A,one line", *["p,1,1,1,B,two lines"] * 2, *["p,1,1,1,C,three lines"] * 3]
    folder = plays(tmp_path, *rows)
    for minimum, clients, tested in ((1, 3, 2), (2, 2, 2), (3, 1, 1)):
        data = load_shakespeare(folder, minimum_lines=minimum)
        assert len(np.unique(data.train.owners)) == clients
        assert len(np.unique(data.test.owners)) == tested
    with pytest.raises(ValueError, match="minimum_lines = 4 leaves no speaker"):
        load_shakespeare(folder, minimum_lines=4)


@pytest.mark.parametrize(
    ("option", "pattern"),
    [
        ({"minimum_lines": 0}, "minimum_lines must be at least 1"),
        ({"test_fraction": 1.0}, "test_fraction"),
        ({"length": 0}, "length and stride"),
        ({"stride": 0}, "length and stride"),
    ],
)
def test_bad_options_are_refused(tmp_path: Path, option: dict[str, float], pattern: str) -> None:
    folder = plays(tmp_path, *["p,1,1,1,B,two lines"] * 2)
    with pytest.raises(ValueError, match=pattern):
        load_shakespeare(folder, **option)


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("play,speaker,line\n", "header"),
        ("", "header"),
        ("play,act,scene,speech,speaker,line\np,1,1,1,A\n", "line 2 has 5 fields"),
    ],
)
def test_other_columns_are_refused(tmp_path: Path, text: str, pattern: str) -> None:
    with pytest.raises(DataError, match=pattern) as caught:
        read_moby_lines(write(tmp_path, SHAKESPEARE.path, text))
    assert caught.value.reason is DataProblem.FORMAT


def test_text_is_unicode(tmp_path: Path) -> None:
    folder = write(tmp_path, TINY_SHAKESPEARE.path, "É:\nÉ\n", encoding="latin-1")
    with pytest.raises(DataError, match="UTF-8"):
        read_tiny_lines(folder)


def test_speeches_are_set_apart_by_blank_lines(tmp_path: Path) -> None:
    text = (
        "First Citizen:\nBefore we go,\nhear me: speak.\n\nAll:\nSpeak.\n\nFirst Citizen:\nYou.\n"
    )
    folder = write(tmp_path, TINY_SHAKESPEARE.path, text)
    assert read_tiny_lines(folder) == {
        ("", "First Citizen"): ["Before we go,", "hear me: speak.", "You."],
        ("", "All"): ["Speak."],
    }
    data = load_tinyshakespeare(folder, length=5)
    assert data.name == "tinyshakespeare" and set(data.train.owners) == {0}


def test_a_speech_without_a_speaker_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"begins with 'Speak\.'"):
        read_tiny_lines(write(tmp_path, TINY_SHAKESPEARE.path, "All:\nSpeak.\n\nSpeak.\n"))


@pytest.fixture
def names(tmp_path: Path) -> DataFolder:
    """Ten names per language, the first three alike but for accents."""
    for place, file in enumerate(NAMES.values()):
        others = [f"{letter}{chr(97 + place)}" for letter in "Bcdefgh"]
        write(tmp_path, file.path, "\n".join(["Ábel", "Abel", "Ábel", *others, ""]))
    return DataFolder(tmp_path, check=False)


def test_names_are_padded_and_split_by_language(names: DataFolder) -> None:
    data = load_names(names, length=4, test_fraction=0.25)
    assert data.classes == len(LANGUAGES) == 18 and data.shape == (4,)
    assert len(data.train) + len(data.test) == 18 * 8
    assert np.bincount(data.test.labels).tolist() == [2] * 18
    spelling = [decode_text(row) for row in data.train.inputs]
    assert {"Abel", f"B{chr(97)}"} & set(spelling) and "\ufffd" not in "".join(spelling)


def test_repeated_names_can_be_kept_and_long_ones_cut(names: DataFolder) -> None:
    data = load_names(names, length=1, distinct=False)
    assert len(data.train) + len(data.test) == 18 * 10
    assert {decode_text(row) for row in data.train.inputs} == set("ABcdefgh")
    with pytest.raises(ValueError, match="length must be at least 1"):
        load_names(names, length=0)


def test_names_are_unicode(names: DataFolder) -> None:
    write(names.root, NAMES["Czech"].path, "Ábel\n", encoding="latin-1")
    with pytest.raises(DataError, match=r"Czech\.txt.*UTF-8"):
        load_names(names)


@pytest.mark.parametrize(
    ("name", "plain"),
    [("Ábrahám", "Abraham"), ("Groß", "Gross"), ("Słowik", "Slowik"), ("O'Neal", "O'Neal")],
)
def test_accents_are_dropped(name: str, plain: str) -> None:
    assert without_accents(name) == plain
