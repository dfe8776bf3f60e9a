"""What clients and server of the pairwise protocol refuse, and what they just take: the corpus."""

from __future__ import annotations

import pytest
from refusal_corpus import Corpus

from secagg import Reason

CORPUS = Corpus("rounds")


@pytest.mark.parametrize("group", CORPUS.groups)
def test_what_becomes_of_changed_messages(group: str) -> None:
    assert CORPUS.wrong(group) == {}


def test_every_message_has_rows() -> None:
    CORPUS.check()


def test_every_reason_has_a_row() -> None:
    assert CORPUS.reasons == {reason.name for reason in Reason}
