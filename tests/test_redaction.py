"""What hides secrets from `repr` hides them from rich, which draws tracebacks with their locals."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import secagg.oneshot.messages
import secagg.pairwise.messages  # noqa: F401
from dp import NoiseSeed
from protocol.round.member_noise import AddedNoise, _Memory
from secagg.framing import _LENGTHS, Redacted
from secagg.keys import AgreementKey, Identity, SecretSeed
from secagg.pairwise.rebuild import Rebuilt
from secagg.pairwise.unmask import MaskRemoval, _Lost
from simulations.learning.run.secrets import RunSecrets
from simulations.threats.catalogue.tracebacks import HidingFromReprAlone, printed

ROOT = Path(__file__).parents[1]
SECRET = b"0123456789abcdef" * 2
VALUES: dict[Any, Any] = {
    **{int: 0, float: 0.0, bool: False},
    dict[str, bytes]: {},  # a backup's files, of which none is secret
    tuple[AddedNoise, ...]: (AddedNoise(0, 1.0, SECRET),),
}

HIDING = {
    "_Secret": [SecretSeed(SECRET), AgreementKey(SECRET)],
    "Identity": [Identity.from_private_bytes(SECRET)],
    "NoiseSeed": [NoiseSeed(SECRET)],
    "Rebuilt": [Rebuilt({0: SECRET}, {})],
    "MaskRemoval": [MaskRemoval((SECRET,), (True,))],
    "_Lost": [_Lost(0, SECRET, ((1, SECRET),))],
    "RunSecrets": [RunSecrets(SECRET)],
    # Needs pfl, and is no struct: rich prints such a class by its repr.
    "FieldStatistics": [],
}
"""Instances of every class whose repr is written by hand; sketches have no secrets."""


def redacted(kind: type = Redacted) -> list[type[Redacted]]:
    """All structs that print sizes only and are no mere bases."""
    below = [each for child in kind.__subclasses__() for each in redacted(child)]
    return below or [kind]


def filled(kind: type[Redacted]) -> Redacted:
    """A struct with secrets wherever it has bytes."""
    secret = {
        name: (SECRET * 2)[: _LENGTHS.get(name, 32)] if hint is bytes else VALUES[hint]
        for name, hint in get_type_hints(kind).items()
        if name in kind.__struct_fields__
    }
    return kind(**secret)


def test_every_class_with_a_repr_of_its_own_is_listed() -> None:
    found = {
        node.name
        for package in ("secagg", "dp", "protocol", "simulations", "veilsum")
        for path in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
        and any(getattr(each, "name", None) == "__repr__" for each in node.body)
    }
    assert found == {"Redacted", "HidingFromReprAlone", *HIDING}
    assert {_Memory, AddedNoise} < set(redacted())


@pytest.mark.parametrize(
    "victim",
    [*(each for kind in HIDING.values() for each in kind), *map(filled, redacted())],
    ids=lambda victim: type(victim).__name__,
)
def test_no_secret_is_printed(victim: object) -> None:
    shown = printed(victim)
    for part in (SECRET[:8], SECRET[8:16]):
        assert part.decode() not in shown and part.hex() not in shown
    assert type(victim).__name__ in shown


def test_a_struct_that_hides_in_its_repr_alone_is_found_out() -> None:
    assert SECRET.decode() in printed(HidingFromReprAlone(SECRET))
