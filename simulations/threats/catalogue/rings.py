"""A29: a server that tries rosters by itself until the ring suits it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from protocol import ClientHistory, ClientPolicy, PolicyError, PrivacyGoal, RoundClient
from protocol.conduct import PEER_ERRORS
from simulations.threats.catalogue.base import Attack, Effort, Findings, refusal
from simulations.threats.rounds.grinding import (
    LIFETIME_SECONDS,
    SCALED_BITS,
    Grinder,
    Ground,
    ServersTime,
    people_of,
    scaled_round,
)
from simulations.threats.rounds.parties import TRUSTING, edited

SCALED: Final = replace(TRUSTING, minimum_security_bits=1)
"""Takes part in anything, rings of a few bits included."""
EXPIRING: Final = replace(SCALED, largest_lifetime_seconds=LIFETIME_SECONDS)
GOAL: Final = replace(SCALED, goal=PrivacyGoal(1.0, 1e-5, 10), equal_rounds=False)

_JOINED: Final = "joined"


def grinding(effort: Effort, seed: int) -> Findings:
    """A29: see the module.

    A round is lost by chance if its very first ring is a bad one, once in a thousand in this
    model: so the attack counts as stopped unless it wins all rounds.
    """
    rounds = effort.choose(2, 20)
    late = [_ground(seed, number, EXPIRING, keeps_time=True) for number in range(rounds)]
    twins = [_ground(seed, number, SCALED, keeps_time=False) for number in range(rounds)]
    answers = _answers(seed)
    real, twin = _figures(late), _figures(twins)
    stopped = all(answer != _JOINED for answer in answers.values())
    told = {**answers, "a ring found after the end": _refusals(late)}
    return Findings(
        {
            **real,
            "succeeded": bool(real["succeeded"]) or not stopped,
            "refused_with": "; ".join(f"{what}: {how}" for what, how in told.items()),
        },
        {**twin, "security_bits": SCALED_BITS},
    )


def _ground(seed: int, number: int, policy: ClientPolicy, *, keeps_time: bool) -> Ground:
    setup = scaled_round(seed, number)
    return Grinder(setup, seed, policy, ServersTime(), keeps_time).run()


def _figures(found: Sequence[Ground]) -> dict[str, int | bool]:
    opened = sum(each.opened for each in found)
    return {
        "successes": opened,
        "trials": len(found),
        "succeeded": opened == len(found),
        "tries": sum(each.tries for each in found),
    }


def _refusals(found: Sequence[Ground]) -> str:
    """How all clients refused, each kind once."""
    return ", ".join(sorted({_told(error) for each in found for error in each.refusals}))


def _answers(seed: int) -> dict[str, str]:
    """How a client answers that needs no clock to refuse such a ring."""
    announcement = scaled_round(seed, 0).announce()
    rounds = {
        "too few bits": (announcement, TRUSTING),
        "few bits called eighty": (edited(announcement, security_bits=80), SCALED),
        "few bits under a goal": (announcement, GOAL),
    }
    return {what: _answer(seed, *told) for what, told in rounds.items()}


def _answer(seed: int, announcement: bytes, policy: ClientPolicy) -> str:
    people = people_of(seed)
    registry = frozenset(person.public for person in people)
    try:
        history = ClientHistory(policy.goal)
        RoundClient(people[0], registry, policy, history).join(announcement, bytes(32))
    except PEER_ERRORS as error:
        return _told(error)
    return _JOINED


def _told(error: Exception) -> str:
    parameter = f" ({error.parameter})" if isinstance(error, PolicyError) else ""
    return f"{refusal(error)}{parameter}"


ATTACKS: Final = (
    Attack(
        id="A29",
        title="A server that tries rosters by itself finds no ring that opens an update in time",
        stopped_by="rings of eighty bits, and clients that leave a round which has expired",
        run=grinding,
    ),
)
