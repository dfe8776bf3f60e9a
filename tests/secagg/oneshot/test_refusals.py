"""What members and server of a one-shot round refuse, complain about and just take: the corpus."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from refusal_corpus import Corpus

import secagg

CORPUS = Corpus("one-shot-rounds", "one_shot.")


@pytest.mark.parametrize("group", CORPUS.groups)
def test_what_becomes_of_changed_messages(group: str) -> None:
    assert CORPUS.wrong(group) == {}


def test_every_message_has_rows() -> None:
    CORPUS.check()


def test_every_reason_that_the_sources_name_has_a_row() -> None:
    """A bad seal is a complaint here, not an error."""
    source = Path(secagg.__file__).parent
    shared = [source / f"{name}.py" for name in ("framing", "server", "session")]
    texts = [path.read_text() for path in (*source.glob("oneshot/*.py"), *shared)]
    named = {name for text in texts for name in re.findall(r"Reason\.([A-Z_]+)", text)}
    assert CORPUS.reasons == named
