"""Shakespeare by speaker: predict the next character; every role is a client.

A client is a (play, speaker) pair. Names are compared in upper case; lines without a speaker, of
several ("&" in the name) and of a crowd (a name that begins with ALL, BOTH or ENSEMBLE) belong to
nobody and are left out. Each client's last lines are its test text: time goes forward, and no
context reaches across.

May use numpy; must not know torch, models or the protocol.

Source: the task of McMahan et al. 2017 (arXiv 1602.05629), section 3, and of LEAF
(arXiv 1812.01097), on the Moby text of the plays.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from simulations.learning.data.base import DataKind, Dataset, Owners, Split
from simulations.learning.data.catalog import SHAKESPEARE, TINY_SHAKESPEARE
from simulations.learning.data.errors import DataError, DataProblem
from simulations.learning.data.files import DataFile, DataFolder
from simulations.learning.data.splitting import TEST_FRACTION, check_fraction
from simulations.learning.data.text import VOCABULARY, Tokens, encode_text, next_token_windows

Speaker = tuple[str, str]
"""Play and role; the play is empty where the source does not tell plays apart."""

SpokenLines = Mapping[Speaker, Sequence[str]]
"""What each speaker says, in the order of the plays."""

COLUMNS = ("play", "act", "scene", "speech", "speaker", "line")
"""Header of the file of lines."""

COLLECTIVE = frozenset({"ALL", "BOTH", "ENSEMBLE"})
"""First words of the names of crowds."""


def load_shakespeare(
    folder: DataFolder,  # holds ``shakespeare/moby_lines.csv.gz``
    *,
    length: int = 80,  # characters per context
    stride: int = 20,
    minimum_lines: int = 2,
    test_fraction: float = TEST_FRACTION,
) -> Dataset:
    """Load 37 plays as next-character examples of their speakers.

    Args:
        stride: distance between the contexts of a speaker; LEAF's is 1, which takes ``length``
            times 8 bytes for each of 4.6 million characters.

    Post: inputs are int64[m, length], owners count the clients from 0.
    """
    lines = read_moby_lines(folder)
    return _dataset("shakespeare", lines, length, stride, minimum_lines, test_fraction)


def load_tinyshakespeare(
    folder: DataFolder,
    *,
    length: int = 80,
    stride: int = 20,
    minimum_lines: int = 2,
    test_fraction: float = TEST_FRACTION,
) -> Dataset:
    """Load a third of the plays; a client is a name as it is spelt, whatever the play.

    Args and raises as :func:`load_shakespeare`.
    """
    lines = read_tiny_lines(folder)
    return _dataset("tinyshakespeare", lines, length, stride, minimum_lines, test_fraction)


def read_moby_lines(folder: DataFolder) -> SpokenLines:
    """Read what every speaker of every play says."""
    spoken: dict[Speaker, list[str]] = {}
    for row in _rows(folder, SHAKESPEARE):
        speaker = row[4].strip().upper()
        if _is_person(speaker):
            spoken.setdefault((row[0], speaker), []).append(row[5])
    return spoken


def _is_person(speaker: str) -> bool:
    """Return whether a name in upper case stands for one role."""
    return bool(speaker) and "&" not in speaker and speaker.split()[0] not in COLLECTIVE


def read_tiny_lines(folder: DataFolder) -> SpokenLines:
    """Read what every speaker says: speeches are set apart by blank lines and begin with a name."""
    spoken: dict[Speaker, list[str]] = {}
    subject = folder.subject(TINY_SHAKESPEARE)
    for speech in folder.read_text(TINY_SHAKESPEARE).strip().split("\n\n"):
        name, *lines = speech.strip().split("\n")
        if not name.endswith(":"):
            raise DataError(
                subject, DataProblem.FORMAT, f"a speech begins with {name!r}", "a name and a colon"
            )
        spoken.setdefault(("", name[:-1]), []).extend(lines)
    return spoken


def _dataset(
    name: str,
    spoken: SpokenLines,
    length: int,
    stride: int,
    minimum_lines: int,
    test_fraction: float,
) -> Dataset:
    """Turn lines into windows, speaker by speaker."""
    check_fraction(test_fraction)
    if minimum_lines < 1:
        raise ValueError(f"minimum_lines must be at least 1, got {minimum_lines}")
    kept = [lines for lines in spoken.values() if len(lines) >= minimum_lines]
    if not kept:
        raise ValueError(f"minimum_lines = {minimum_lines} leaves no speaker")
    cuts = [_test_start(len(lines), test_fraction) for lines in kept]
    pairs = list(zip(kept, cuts, strict=True))
    return Dataset(
        name=name,
        kind=DataKind.TEXT,
        classes=VOCABULARY,
        vocabulary=VOCABULARY,
        train=_windows((lines[:cut] for lines, cut in pairs), length, stride),
        test=_windows((lines[cut:] for lines, cut in pairs), length, stride),
    )


def _test_start(lines: int, test_fraction: float) -> int:
    """Return how many of a speaker's lines are for training: at least one."""
    return max(1, min(lines - 1, round(lines * (1.0 - test_fraction))))


def _windows(texts: Iterable[Sequence[str]], length: int, stride: int) -> Split:
    """Cut each client's text into windows; the client's number is its place."""
    contexts: list[Tokens] = []
    answers: list[Tokens] = []
    owners: list[Owners] = []
    for owner, lines in enumerate(texts):
        tokens = encode_text("".join(f"{line}\n" for line in lines))
        context, answer = next_token_windows(tokens, length, stride)
        contexts.append(context)
        answers.append(answer)
        owners.append(np.full(len(answer), owner, dtype=np.int64))
    return Split(np.concatenate(contexts), np.concatenate(answers), np.concatenate(owners))


def _rows(folder: DataFolder, file: DataFile) -> Iterator[list[str]]:
    """Yield the rows below the header."""
    subject = folder.subject(file)
    rows = csv.reader(io.StringIO(folder.read_text(file), newline=""))
    header = next(rows, [])
    if tuple(header) != COLUMNS:
        raise DataError(subject, DataProblem.FORMAT, f"header {header}", ", ".join(COLUMNS))
    for row in rows:
        if len(row) != len(COLUMNS):
            raise DataError(
                subject,
                DataProblem.FORMAT,
                f"line {rows.line_num} has {len(row)} fields",
                f"{len(COLUMNS)} fields",
            )
        yield row
