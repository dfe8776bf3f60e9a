"""Rounds that end with a sum."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from secagg.field import PrimeField
from secagg.pairwise.reference import Stage, expand_element

from . import wire
from .handmade import Round
from .schema import Error, RoundVector
from .script import Script, remote

SMALL = Round(n=3, threshold=2, minimum=2, bits=16, length=5, seed="small")
DROPS = Round(n=5, threshold=3, minimum=3, bits=16, seed="drops")
CURIOUS = Round(n=4, threshold=2, minimum=2, mode="semi_honest", bits=16, seed="curious")

HONEST: dict[str, tuple[str, Round]] = {
    "active": ("Complete graph, active mode, nobody leaves.", SMALL),
    "semi-honest-drop": (
        "Complete graph, semi-honest mode: client 2 leaves before its upload.",
        replace(CURIOUS, n=5, threshold=3, minimum=3, colluders=1, bits=24, drops={2: Stage.MASK}),
    ),
    "smallest": (
        "Two clients, one element of the widest field here.",
        replace(CURIOUS, n=2, bits=61, length=1),
    ),
    "active-drops-even": (
        "Active mode: a client leaves before round 0, one before round 4.",
        replace(DROPS, drops={4: Stage.ADVERTISE, 1: Stage.UNMASK}),
    ),
    "active-drops-odd": (
        "Active mode: a client leaves before round 1, one before round 3.",
        replace(DROPS, drops={0: Stage.SHARE, 3: Stage.CONFIRM}),
    ),
    "active-drop-before-upload": (
        "Active mode: a client leaves before round 2. For one lost client the context's table asks "
        "for no removable seed.",
        replace(SMALL, removal=(0b1, 0), drops={1: Stage.MASK}),
    ),
    "sparse": (
        "Active mode, ring of seven, four neighbours each, one tolerated colluder, a round that "
        "expires: client 2 leaves before its upload.",
        Round(
            n=7,
            threshold=3,
            minimum=5,
            colluders=1,
            degree=4,
            bits=31,
            security_bits=88,
            opened_at=1_750_000_000,
            lifetime_seconds=3600,
            drops={2: Stage.MASK},
            seed="sparse",
        ),
    ),
    "sparse-recovery": (
        "Semi-honest mode, ring of six, four neighbours each: client 5 leaves before it gives up "
        "its removable seed, which its neighbours' shares rebuild.",
        Round(
            n=6,
            threshold=2,
            minimum=5,
            mode="semi_honest",
            colluders=1,
            degree=4,
            removal=(0b1, 0b1),
            bits=24,
            drops={5: Stage.UNMASK},
            seed="sparse recovery",
        ),
    ),
    "sparse-committee": (
        "Active mode, ring of 68, four neighbours each: 64 clients, drawn at random, confirm the "
        "survivor set. Client 7 leaves before it confirms.",
        Round(
            n=68,
            threshold=3,
            minimum=66,
            degree=4,
            bits=8,
            length=1,
            drops={7: Stage.CONFIRM},
            seed="committee",
        ),
    ),
    "sparse-few-members": (
        "With degree 2 and three members everybody is a neighbour of everybody; nobody holds a "
        "share of its own secrets, as on a larger ring.",
        Round(
            n=4,
            threshold=2,
            minimum=3,
            degree=2,
            bits=31,
            drops={3: Stage.ADVERTISE},
            seed="few members",
        ),
    ),
    "recovery": (
        "Two removable seeds, nobody lost: both are given up, and those of client 2, which leaves "
        "after its upload, are rebuilt in round 5.",
        replace(SMALL, removal=(0b11, 0b01), bits=32, length=2, drops={2: Stage.UNMASK}),
    ),
    "recovery-semi-honest": (
        "One client lost, the second of two seeds to give up; one client leaves before round 4, "
        "one before round 5.",
        replace(
            CURIOUS,
            n=5,
            minimum=4,
            colluders=1,
            removal=(0b11, 0b10),
            bits=61,
            drops={3: Stage.MASK, 2: Stage.UNMASK, 0: Stage.RECOVER},
        ),
    ),
    "refused-words": (
        "A field of 8 bits: mask elements whose first word is refused, and one whose second is "
        "refused as well.",
        replace(SMALL, bits=8, length=40, seed="refused words 44"),
    ),
}


def refusals_of(round_: Round) -> list[int]:
    """For every element of every self mask, how many words were refused."""
    field = PrimeField(round_.bits)
    keys = [wire.self_mask_key(round_.secrets(u)[0], round_.hash, u) for u in round_.participants]
    return [expand_element(field, key, i)[1] for key in keys for i in range(round_.length)]


def honest(name: str) -> RoundVector:
    """A round in which everybody who answers is honest."""
    description, round_ = HONEST[name]
    round_.check_against_reference()
    if name == "refused-words" and max(refusals_of(round_)) < 2:
        raise AssertionError("choose another seed: no word is refused twice")
    script = Script(round_, description)
    script.play(round_.events())
    return script.vector()


def liar() -> RoundVector:
    """A wrong share that is found, and whose sender is named."""
    shares = bytearray(CURIOUS.unmask_parts(1)[0])
    shares[36 * 2] ^= 1
    script = Script(
        CURIOUS,
        "Client 1 gives up a wrong share of client 2's seed: the sum is right, and 1 is named.",
    )
    for event in CURIOUS.events():
        if event.data == "unmask 1":
            script.step("server_receive", 1, data=CURIOUS.unmask_shares(1, bytes(shares)))
        elif event.op == "server_unmask":
            script.step("server_unmask", expect=CURIOUS.result(culprits=[1]))
        elif event.expect != "unmask 1":
            script.play([event])
    return script.vector()


def undisturbed(round_: Any, bad: Mapping[str, tuple[bytes, Error]]) -> Any:
    """Refused messages change nothing."""
    script = Script(
        round_,
        "The server refuses a bad message in every stage, and ends with the sum all the same.",
    )
    for event in round_.events():
        if event.op.startswith("server_receive") and event.data in bad:
            data, error = bad[event.data]
            script.step(event.op, event.client, data=data, error=error)
        script.play([event])
    return script.vector()


def vectors() -> Iterator[tuple[str, RoundVector]]:
    """All files, by name."""
    for name in HONEST:
        yield name, honest(name)
    yield "liar-is-named", liar()
    foreign = bytes(64)
    bad = {
        "advertisement 1": (SMALL.advertisement(1)[:-1] + b"\x00", remote(1, "BAD_SIGNATURE")),
        "bundle 2": (SMALL.bundle(2, sealed=b""), remote(2, "BAD_LENGTH")),
        "input 0": (SMALL.masked_input(0, signature=foreign), remote(0, "BAD_SIGNATURE")),
        "confirmation 1": (SMALL.confirmation(1, foreign), remote(1, "BAD_SIGNATURE")),
        "unmask 2": (SMALL.unmask_shares(2, seeds=bytes(32)), remote(2, "BAD_SHARE")),
    }
    yield "refusals-change-nothing", undisturbed(SMALL, bad)
