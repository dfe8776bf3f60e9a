"""One-shot clients made from the documents, among the project's own."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from secagg import FieldVector, Identity, PrimeField
from secagg.keys import AgreementKey
from secagg.oneshot.client import OneShotClient as ProjectsClient
from secagg.oneshot.committee import Committee, CommitteeKind, Member
from secagg.oneshot.context import Cohort
from secagg.oneshot.context import OneShotContext as ProjectsContext
from secagg.oneshot.member import OneShotMember
from secagg.oneshot.server import OneShotServer
from tests.independent.blocks import Refused, u32, u64
from tests.independent.context import OneShotContext
from tests.independent.draw import Draw
from tests.independent.one_shot import OneShotClient, Ring

PRIMITIVES = Path(__file__).parents[1] / "vectors" / "primitives"
KEYS = [Ed25519PrivateKey.generate() for _ in range(5)]
IDENTITIES = [Identity.from_private_bytes(key.private_bytes_raw()) for key in KEYS]
PEOPLE = [Identity.generate() for _ in range(4)]
SEALING = [AgreementKey(os.urandom(32)) for _ in PEOPLE]
COHORT = Cohort([identity.public for identity in IDENTITIES])


def context_of(**terms: Any) -> ProjectsContext:
    """A round of five clients and a committee of four."""
    keys = zip(PEOPLE, SEALING, strict=True)
    committee = Committee(
        kind=CommitteeKind.NAMED,
        members=tuple(Member.sign(who, bytes(16), key.public, 1, 5) for who, key in keys),
        corrupt=0,
        randomness=1,
        per_polynomial=2,
        quorum=3,
    )
    return ProjectsContext(
        session_id=bytes(16),
        round_number=3,
        minimum_survivors=4,
        tolerated_colluders=0,
        application_digest=bytes(32),
        size=5,
        cohort_root=COHORT.root,
        committee=committee,
        **terms,
    )


def ours(context: ProjectsContext) -> OneShotContext:
    """The same context, as the documents have it."""
    committee = context.committee
    terms: dict[str, Any] = {
        "kind": committee.kind.value,
        "members": tuple(m.encode() for m in committee.members),
    }
    names = ("corrupt", "randomness", "per_polynomial", "quorum")
    terms |= {name: getattr(committee, name) for name in names}
    rest = set(OneShotContext.__dataclass_fields__) - set(terms) - {"draw"}
    return OneShotContext(**terms, **{name: getattr(context, name) for name in rest})


@pytest.mark.parametrize("lost", [None, 0, 1])
@pytest.mark.parametrize(
    "ring",
    [
        {"degree": 1024, "limbs": 1, "bits": 12, "length": 70},
        {"degree": 1024, "limbs": 1, "bits": 12, "length": 1030, "rounding_bits": 3},
        {"degree": 2048, "limbs": 2, "bits": 17, "length": 301, "entries": 2, "removal": (3, 2)},
        {"degree": 4096, "limbs": 3, "bits": 16, "length": 300, "rounding_bits": 6, "entries": 3},
        {"degree": 8192, "limbs": 7, "bits": 20, "length": 41, "rounding_bits": 11},
    ],
)
def test_uploads_among_the_projects_own(ring: dict[str, Any], lost: int | None) -> None:
    context = context_of(**ring)
    theirs = ours(context)
    assert theirs.hash == context.hash
    field, server = PrimeField(context.bits), OneShotServer(context, COHORT)
    # Sums stay between -p/2 and p/2, as a digit of a coefficient has to.
    bound = field.modulus // 11
    signed = np.random.default_rng(7).integers(-bound, bound, (5, context.length))
    vectors = (signed % field.modulus).astype(field.dtype)
    for index in range(5):
        if index == lost:
            continue
        path = COHORT.proof(index)
        if index % 2:
            client = OneShotClient(theirs, index, path, KEYS[index])
            server.receive_upload(index, client.upload(vectors[index].tolist()))
        else:
            project = ProjectsClient(context, index, IDENTITIES[index], path)
            project.seeds(b"rounded")
            vector = FieldVector(field, vectors[index])
            server.receive_upload(index, project.submit_bytes(vector))
    members = [
        OneShotMember(context, place, PEOPLE[place], SEALING[place]) for place in range(len(PEOPLE))
    ]
    for _ in range(3):
        for place, data in list(server.close_round_bytes()):
            server.receive_from_member(place, members[place].receive_bytes(data))
    total = server.open()
    assert total.survivors == tuple(index for index in range(5) if index != lost)
    expected = vectors[list(total.survivors)].astype(np.int64).sum(axis=0) % field.modulus
    assert np.array_equal(total.vector.elements, expected)
    assert not total.noisy
    assert len(total.removed) == (len(total.survivors) if context.removal else 0)


RING = {"degree": 1024, "limbs": 1, "bits": 12, "length": 70}


def test_delta_of_a_ring_without_rounding() -> None:
    assert Ring.of(2048, 2, 0, 100, 2**21 + 1).delta == 1153
    assert Ring.of(2048, 2, 7, 100, 4097).delta == 6753


def test_uploads_once() -> None:
    client = OneShotClient(ours(context_of(**RING)), 1, COHORT.proof(1), KEYS[1])
    client.upload([0] * 70)
    with pytest.raises(Refused):
        client.upload([1] * 70)


@pytest.mark.parametrize(
    "changes",
    [
        {"session_id": bytes(15) + b"1"},  # members' keys are signed for another one
        {"round_number": 6},
        {"randomness": 0, "corrupt": 1},
        {"quorum": 2},
        {"minimum_survivors": 2},
        {"degree": 4096, "limbs": 4},
        {"cohort_root": bytes(32)},
        {"opened_at": 1, "lifetime_seconds": 8},
    ],
)
def test_refuses_what_the_theorem_does_not_cover(changes: dict[str, Any]) -> None:
    context = ours(context_of(**RING))
    with pytest.raises(Refused):
        OneShotClient(replace(context, **changes), 1, COHORT.proof(1), KEYS[1], lambda: 10.0)


def drawn_cases() -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = json.loads((PRIMITIVES / "one-shot-draw.json").read_text())[
        "cases"
    ]
    return cases


@pytest.mark.parametrize("case", drawn_cases())
def test_draws_of_the_vectors(case: dict[str, Any]) -> None:
    terms = case["draw"]
    root, beacon = (bytes.fromhex(terms[name]) for name in ("registry_root", "beacon"))
    draw = Draw(root, terms["registry_size"], terms["odds"], beacon)
    registry = [bytes.fromhex(key) for key in case["registry"]]
    identities = [registry[place % len(registry)] for place in case["positions"]]
    session, number = bytes.fromhex(case["session_id"]), case["round_number"]
    shown = (u32(*case["positions"]), bytes.fromhex(case["proof"]))
    if case["valid"]:
        draw.check(session, number, identities, *shown)
        with pytest.raises(Refused, match="candidate"):
            replace(draw, odds=1).check(session, number, identities, *shown)
    else:
        with pytest.raises(Refused):
            draw.check(session, number, identities, *shown)


def test_contexts_of_the_vectors() -> None:
    cases = json.loads((PRIMITIVES / "one-shot-context.json").read_text())["cases"]
    seen = set()
    for case in cases:
        terms, committee = case["context"], case["context"]["committee"]
        if terms.get("member_uploads"):
            continue
        draw = committee.get("draw")
        if draw:
            beacon = bytes.fromhex(draw["beacon"])
            root = bytes.fromhex(draw["registry_root"])
            draw = Draw(root, draw["registry_size"], draw["odds"], beacon)
        members = tuple(
            bytes.fromhex(m["identity"] + m["sealing_key"])
            + u64(m["first_round"], m["last_round"])
            + bytes.fromhex(m["signature"])
            for m in committee["members"]
        )
        given: dict[str, Any] = {"draw": draw, "members": members, "size": len(terms["cohort"])}
        for name in set(OneShotContext.__dataclass_fields__) - set(given):
            value = committee[name] if name in committee else terms[name]
            is_bytes = name in ("session_id", "cohort_root", "application_digest")
            given[name] = bytes.fromhex(value) if is_bytes else value
        assert OneShotContext(**given).hash.hex() == terms["hash"]
        seen.add(committee["kind"])
    assert seen == {"everyone", "named", "drawn"}
