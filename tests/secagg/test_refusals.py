"""The refusal corpus: what every party makes of a changed message, row by row.

The rows are in tests/vectors/refusals.py and tests/vectors/one_shot/refusals.py. Those that are
frozen as files are played by tests/test_vectors.py, all others here, by the same player: the change
is refused as the row says and nothing is taken after it, or the server is as it was and ends with
the exact sum; in its place the honest message is taken.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from vector_files import VECTORS, load

import secagg
from secagg import ProtocolError, Reason

TABLES = {"pairwise": load("refusals"), "one-shot": load("one_shot.refusals")}
RUNNERS = {"pairwise": load("runner"), "one-shot": load("one_shot.runner")}
corpus = load("corpus")
GROUPS = {
    f"{scheme}-{group.__name__}": (scheme, group)
    for scheme, table in TABLES.items()
    for group in table.TABLE
}


@cache
def honest(scheme: str, base: str) -> dict[str, Any]:
    """A round of the table, from its file if there is one."""
    folder = "rounds" if scheme == "pairwise" else "one-shot-rounds"
    made: dict[str, Any]
    if (path := VECTORS / folder / f"{base}.json").exists():
        made = json.loads(path.read_text())
        return made
    round_ = TABLES[scheme].ROUNDS[base]
    script = load("script").Script(round_, base)
    script.play(round_.events())
    made = script.vector()
    return made


@pytest.mark.parametrize("name", GROUPS)
def test_what_becomes_of_changed_messages(name: str) -> None:
    scheme, group = GROUPS[name]
    table, wrong = TABLES[scheme], {}
    for row in group():
        base = row.base or table.DEFAULT
        if row.says:
            continue
        try:
            vector = row.vector(table.ROUNDS[base], base)
            RUNNERS[scheme].run_refusal(vector, honest(scheme, base))
        except (AssertionError, ProtocolError) as error:
            wrong[row.name] = repr(error)
    assert wrong == {}


def test_names_are_unique() -> None:
    for table in TABLES.values():
        names = [row.name for row in corpus.rows(table)]
        assert len(names) == len(set(names))


@pytest.mark.parametrize("scheme", TABLES)
def test_every_message_is_changed_for_every_side_that_gets_it(scheme: str) -> None:
    """A message without a row is one whose checks nobody tries."""
    rows = corpus.rows(TABLES[scheme])
    got = {(row.side, row.at.split()[0]) for row in rows if row.at and not row.op}
    wanted = {
        (event.op.split("_")[0], event.data.split()[0])
        for round_ in TABLES[scheme].ROUNDS.values()
        for event in round_.events()
        if event.data is not None
    }
    assert got == wanted


def test_every_reason_of_the_pairwise_protocol_has_a_row() -> None:
    assert reasons("pairwise") == {reason.name for reason in Reason}


def test_every_reason_that_the_one_shot_sources_name_has_a_row() -> None:
    """A bad seal is a complaint there, not an error."""
    source = Path(secagg.__file__).parent
    shared = [source / f"{name}.py" for name in ("framing", "server", "session")]
    texts = [path.read_text() for path in (*source.glob("oneshot/*.py"), *shared)]
    named = {name for text in texts for name in re.findall(r"Reason\.([A-Z_]+)", text)}
    assert reasons("one-shot") == named


def reasons(scheme: str) -> set[str]:
    """All reasons in the table of a protocol."""
    return {row.reason for row in corpus.rows(TABLES[scheme])} - {"", corpus.OVER}
