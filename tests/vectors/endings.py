"""Rounds that end without a sum: too few answers, or shares that rebuild the wrong secret.

These files list the server's steps only, up to the deadline that fails.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from secagg.errors import TooFewSurvivorsError
from secagg.pairwise.reference import Stage, run_secagg

from . import wire
from .bases import ACTIVE
from .handmade import Round
from .schema import Error, RoundVector
from .script import Script, too_few, wrong_shares

SHORT = replace(ACTIVE, length=1, seed="rounds without a sum")
RECOVERY = replace(SHORT, removal=(0b1, 0), drops={2: Stage.UNMASK})
RING = Round(n=5, threshold=2, minimum=4, degree=2, bits=16, length=1, seed="ring")

Made = tuple[str, RoundVector]

DEADLINES = ("advertise", "share", "masked input", "confirm")


def server_ends(
    name: str,
    description: str,
    round_: Any,
    error: Error,
    *,
    without: Container[str | None] = (),
    at: int = -1,
    swap: Mapping[str, bytes] | None = None,
) -> tuple[str, Any]:
    """A deadline of a round of either protocol fails; only the server's steps are listed."""
    script, deadline = Script(round_, description), -1
    for event in round_.events():
        if not event.op.startswith("server") or event.data in without:
            continue
        deadline += event.op == "server_close"
        if event.op == round_.LAST or (event.op == "server_close" and deadline == at):
            script.step(event.op, error=error)
            return f"server-{name}", script.vector()
        if swap and event.data in swap:
            script.step(event.op, event.client, data=swap[event.data])
        else:
            script.play([event], compare=False)
    raise AssertionError(f"{name} does not end")


def server_rebuilding() -> Iterator[Made]:
    """Secrets that do not fit their commitments."""
    promised = replace(SHORT, promises={1: wire.commitment(SHORT.hash, 1, 0, bytes(32))})
    yield server_ends(
        "wrong-rebuilt-seed",
        "Client 1 committed to another seed than the one it shared.",
        promised,
        wrong_shares(1, 3, 2),
    )
    lost = replace(SHORT, drops={1: Stage.MASK})
    lies = dict(other_secret(lost, 1, wire.KEY))
    yield server_ends(
        "wrong-rebuilt-key",
        "Client 1 shared another masking key than its own, and left.",
        replace(lost, lies=lies),
        wrong_shares(1, 2, 2),
    )
    shares = bytearray(SHORT.unmask_parts(0)[0])
    shares[0] ^= 1
    only_two = replace(SHORT, drops={2: Stage.UNMASK})
    yield server_ends(
        "wrong-rebuilt-holder",
        "Client 0 gives up a wrong share of its own seed, and with t answers nobody can tell who "
        "lied: nobody is named.",
        only_two,
        wrong_shares(0, 2, 2),
        swap={"unmask 0": only_two.unmask_shares(0, bytes(shares))},
    )
    wrong = bytearray(RECOVERY.share(2, 1)[72:108])
    wrong[0] ^= 1
    yield server_ends(
        "wrong-rebuilt-recovery",
        "A share of client 2's removable seed is wrong.",
        RECOVERY,
        wrong_shares(2, 2, 2),
        swap={"seeds 1": RECOVERY.seed_shares(1, bytes(wrong))},
    )


def other_secret(round_: Round, owner: int, which: int) -> Iterator[tuple[tuple[int, int], bytes]]:
    """Shares of which one secret's are those of the secret plus 2^30.

    Not plus one: X25519 ignores a private key's three lowest bits.
    """
    second = slice(36 * which + 4, 36 * which + 8)
    for holder in round_.holders[owner]:
        share = bytearray(round_.share(owner, holder))
        element = int.from_bytes(share[second], "little")
        share[second] = ((element + 1) % wire.SHAMIR_PRIME).to_bytes(4, "little")
        yield (owner, holder), bytes(share)


def server_deadlines() -> Iterator[Made]:
    """Too few answers, and a session that is over."""
    few = [
        (name, description, replace(SHORT, drops={0: stage, 2: stage}), name.replace("-", " "))
        for name, description, stage in (
            ("advertise", "One advertisement, two are needed.", Stage.ADVERTISE),
            ("share", "One bundle, two are needed.", Stage.SHARE),
            ("masked-input", "One upload, two are needed.", Stage.MASK),
            ("confirm", "One confirmation, t = 2 are needed.", Stage.CONFIRM),
            ("unmask", "One client gives up shares, t = 2 are needed.", Stage.UNMASK),
        )
    ]
    few += [
        (
            "unmask-ring",
            "Four of five on a ring give up shares, but only one of some client's two holders.",
            replace(RING, drops={0: Stage.UNMASK}),
            "unmask",
        ),
        (
            "unmask-seeds",
            "The same, and removable seeds are missing: none is asked for.",
            replace(RECOVERY, drops={1: Stage.UNMASK, 2: Stage.UNMASK}),
            "unmask",
        ),
        (
            "recover",
            "One client answers the request for client 2's seed, t = 2 are needed.",
            replace(RECOVERY, drops={2: Stage.UNMASK, 0: Stage.RECOVER}),
            "unmask",
        ),
    ]
    for name, description, round_, stage in few:
        error = too_few(stage, 1, 2)
        check_too_few(round_, error)
        # With missing seeds there is a fifth deadline; if enough gave up shares, it is met.
        at = DEADLINES.index(stage) if stage in DEADLINES else 4 if name == "unmask-seeds" else -1
        yield server_ends(f"too-few-{name}", description, round_, error, at=at)


def check_too_few(round_: Round, error: Error) -> None:
    """The reference ends the same way."""
    rand = [wire.counter_rand(seed) for seed in round_.rand_seeds]
    run = partial(run_secagg, round_.session_context(), round_.identities, round_.inputs)
    try:
        run(round_.drops, rand)
    except TooFewSurvivorsError as raised:
        if too_few(raised.stage, raised.survivors, raised.needed) == error:
            return
    raise AssertionError(f"the reference does not end with {error}")


def vectors() -> Iterator[Made]:
    """All files, by name."""
    yield from server_rebuilding()
    yield from server_deadlines()
