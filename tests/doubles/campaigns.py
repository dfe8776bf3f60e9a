"""What tests of the fault campaigns share: a defence is taken away, and the campaign says so."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from protocol.round import pipeline
from secagg.keys import AgreementKey
from simulations.threats.faults import run_campaign


def reports(name: str, what: str, first: int = 0) -> bool:
    """Whether a campaign of one behaviour finds a failure with these words in it."""
    for number in range(first, first + 200, 5):
        found = run_campaign(5, 7, 0.04, names=[name], first=number)
        if any(what in problem for problem in found.failures.values()):
            return True
    return False


class EqualToAll(bytes):
    """A root that no other one differs from."""

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = bytes.__hash__


any_cohort = SimpleNamespace(root=EqualToAll())
"""A cohort that is always the announced one."""


def no_check(*_: object) -> bool:
    """What stands in the place of a check."""
    return True


def lacks(owner: Any, name: str, instead: Any = no_check) -> Callable[[pytest.MonkeyPatch], None]:
    """Something of the product is replaced."""
    return lambda patch: patch.setattr(owner, name, instead)


def forgets_to_remove(patch: pytest.MonkeyPatch) -> None:
    """The server leaves the surplus noise in."""
    patch.setattr(pipeline, "accumulate_removed", lambda *_: None)


def agrees_on_constants(patch: pytest.MonkeyPatch) -> None:
    """Keys of small order give everybody the same secret, and no error."""
    agree = AgreementKey.agree

    def careless(self: AgreementKey, public: bytes) -> bytes:
        try:
            return agree(self, public)
        except ValueError:
            return bytes(32)

    patch.setattr(AgreementKey, "agree", careless)
