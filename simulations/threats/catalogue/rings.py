"""A29 and A66: what may fail by chance, and a server that tries until it does.

It tries rosters by itself until the ring suits it. And it has a client join rounds of both kinds,
with rings and with committees that are drawn, each of which alone may fail with all that the goal
sets aside.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from protocol import (
    ClientHistory,
    ClientPolicy,
    PolicyError,
    PrivacyGoal,
    RoundClient,
    TrainingPlan,
)
from protocol.exchange.stages import PEER_ERRORS
from protocol.noise.noise import Independent
from protocol.planning.policies import client_policy
from protocol.round.clauses import PairwiseClauses
from protocol.round.history import Failure
from protocol.round.one_shot_client import OneShotRoundClient
from protocol.schemes import OneShot, Pairwise
from protocol.schemes.committee import Drawn
from protocol.schemes.one_shot import draw_policy, local_committee, one_shot_setup
from protocol.schemes.pairwise import pairwise_setup
from secagg.oneshot.sortition import Registry
from simulations.audits.base import Figures, derived_bytes, identities_of, public_keys
from simulations.threats.attack import Attack, Effort, Findings, once, refusal, refused_with
from simulations.threats.rounds.grinding import (
    DIMENSION,
    LIFETIME_SECONDS,
    SCALED_BITS,
    Grinder,
    Ground,
    people_of,
    scaled_round,
)
from simulations.threats.rounds.parties import TRUSTING, edited
from sketch import PublicSeed, SketchSpec

SCALED: Final = replace(TRUSTING, schemes=(PairwiseClauses(minimum_security_bits=1),))
"""Takes part in anything, rings of a few bits included."""
EXPIRING: Final = replace(SCALED, largest_lifetime_seconds=LIFETIME_SECONDS)
GOAL: Final = replace(SCALED, goal=PrivacyGoal(1.0, 1e-5, 10), equal_rounds=False)

LARGE: Final = TrainingPlan(
    goal=PrivacyGoal(8.0, 1e-5, 1),
    cohort=210,
    tolerated_dropouts=10,
    tolerated_colluders=20,
    clip_l2=1.0,
    noise=Independent(exact=False),
)
"""A round of the full size, whose ring fails as rarely as its plan says."""

_JOINED: Final = "joined"


def grinding(effort: Effort, seed: int) -> Findings:
    """A29: try rosters until the ring suits the server.

    A round is lost by chance if its very first ring is a bad one, once in a thousand in this
    model: so the attack counts as stopped unless it wins all rounds.
    """
    rounds = effort.choose(2, 20)
    late = [_ground(seed, number, EXPIRING, keeps_time=True) for number in range(rounds)]
    twins = [_ground(seed, number, SCALED, keeps_time=False) for number in range(rounds)]
    answers = {**_answers(seed), "round after round, none finished": _dropped(seed)}
    real, twin = _figures(late), _figures(twins)
    stopped = all(answer != _JOINED for answer in answers.values())
    after_the_end = sorted({_refusal(error) for each in late for error in each.refusals})
    told = {**answers, "a ring found after the end": ", ".join(after_the_end)}
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
    return Grinder(setup, seed, policy, keeps_time).run()


def _figures(found: Sequence[Ground]) -> dict[str, int | bool]:
    opened = sum(each.opened for each in found)
    return {
        "successes": opened,
        "trials": len(found),
        "succeeded": opened == len(found),
        "tries": sum(each.tries for each in found),
    }


def _answers(seed: int) -> dict[str, str]:
    """How a client answers that needs no clock to refuse such a ring."""
    announcement = scaled_round(seed, 0).announce()
    rounds = {
        "too few bits": (announcement, TRUSTING),
        "few bits called eighty": (edited(announcement, security_bits=80), SCALED),
        "few bits under a goal": (announcement, GOAL),
    }
    return {what: _answer(seed, *told) for what, told in rounds.items()}


def _dropped(seed: int) -> str:
    """How a client answers at last that a server has join round after round, to drop each."""
    goal, join = LARGE.goal, _rounds_with(LARGE, seed)
    history, number, spent = ClientHistory(goal), 0, 0.0
    # Twice what fits: a client that looks at one round at a time joins them all.
    while spent <= 2 * goal.rounds * goal.reserve.aggregation:
        try:
            spent += join(history, number)
        except PEER_ERRORS as error:
            return f"{_refusal(error)} after {number}"
        number += 1
    return _JOINED


def _answer(seed: int, announcement: bytes, policy: ClientPolicy) -> str:
    people = people_of(seed)
    registry = frozenset(person.public for person in people)
    try:
        history = ClientHistory(policy.goal)
        RoundClient(people[0], registry, policy, history).join(announcement, bytes(32))
    except PEER_ERRORS as error:
        return _refusal(error)
    return _JOINED


def _refusal(error: Exception) -> str:
    parameter = f" ({error.parameter})" if isinstance(error, PolicyError) else ""
    return f"{refusal(error)}{parameter}"


# -- A66 ------------------------------------------------------------------------------------------

STRICT: Final = PrivacyGoal(8.0, 1.5e-10, 1)
"""Sets aside a little more than draws with a beacon fail with, and as much as seven rings do."""
RINGS: Final = replace(LARGE, goal=STRICT, scheme=Pairwise(security_bits=108))
DRAWS: Final = TrainingPlan(
    goal=STRICT,
    cohort=10,
    tolerated_dropouts=2,
    tolerated_colluders=1,
    clip_l2=1.0,
    scheme=OneShot(committee=Drawn(size=8, corrupt=1, away=1, odds=0.97, security_bits=64)),
)

Join = Callable[[ClientHistory, int], float]
"""Has the client join the round of a number; gives what this adds to what may fail.

Raises:
    PolicyError: it refuses.
"""


class OneKind(ClientHistory):
    """The twin's: counts rings, and leaves draws to the policy, which looks at them alone."""

    def _check_failures(self, failure: Failure) -> None:
        if failure.beacon is None:
            super()._check_failures(failure)

    def _count(self, failure: Failure) -> None:
        if failure.beacon is None:
            super()._count(failure)


def _beacon(session_id: bytes, number: int) -> bytes:
    del session_id
    return hashlib.sha256(b"beacon %d" % number).digest()


def _rounds_with(plan: TrainingPlan, seed: int) -> Join:
    """Rounds of a plan to which the first of its clients is invited."""
    people = identities_of(seed, plan.cohort)
    keys, session = public_keys(people), derived_bytes(seed, plan.scheme.KIND)[:16]
    seeds = PublicSeed(derived_bytes(seed, "public", 0))
    parameters = plan.calibrate(SketchSpec.identity(DIMENSION), bytes(32), seeds)
    if not plan.scheme.SEATS:
        first, policy = (
            pairwise_setup(plan, parameters, keys, session, 0),
            client_policy(plan, DIMENSION),
        )

        def join_ring(history: ClientHistory, number: int) -> float:
            setup = replace(first, context=replace(first.context, round_number=number))
            client = RoundClient(people[0], frozenset(keys), policy, history)
            client.join(setup.announce(), bytes(32))
            return setup.context.ring_failure(keeps_time=False)

        return join_ring
    committee = local_committee(plan, people, beacon_of=_beacon)
    registry = Registry(keys)
    draw = draw_policy(plan, registry.root, len(registry), _beacon)
    drawing = client_policy(plan, DIMENSION, draw=draw)

    def join_draw(history: ClientHistory, number: int) -> float:
        members = committee.members(session, keys, number)
        setup = one_shot_setup(plan, parameters, keys, members, session, number)
        client = OneShotRoundClient(people[0], frozenset(keys), drawing, history)
        client.join(setup.announce(0), bytes(32))
        return 0.0 if number else draw.failure

    return join_draw


def _spent(seed: int, kept: type[ClientHistory] = ClientHistory) -> Figures:
    """The most, of what the goal sets aside, that a client joins if asked in either order."""
    kinds = [_rounds_with(plan, seed) for plan in (DRAWS, RINGS)]
    most, refusals = 0.0, Counter[str]()
    for order in (kinds, kinds[::-1]):
        history, spent = kept(STRICT), 0.0
        for join in order:
            try:
                for number in range(2 if join is kinds[0] else 20):
                    spent += join(history, number)
            except PolicyError as error:
                refusals[_refusal(error)] += 1
        most = max(most, spent / STRICT.reserve.aggregation)
    return {"succeeded": most > 1.0, "spent_of_reserve": most, **refused_with(refusals)}


ATTACKS: Final = (
    Attack(
        id="A29",
        promise="P1",
        name="grinding the ring offline",
        title="A server that tries rosters by itself finds no ring that opens an update in time",
        says="tries nonces of its own client until its clients surround an honest one, in rings "
        "of five bits instead of eighty",
        stopped_by="security bits for client and goal; the end of the round by the client's clock",
        see=("security.md#grinding-the-ring",),
        run=grinding,
    ),
    Attack(
        id="A66",
        promise="P6",
        name="one reserve for rings and draws",
        title="Rings and draws together fail with no more than a goal sets aside",
        says="has a client join pairwise rounds and rounds with drawn committees, each kind using "
        "all that the goal sets aside for such failures",
        stopped_by="one count of both in the client's history",
        refused_with="PolicyError (security_bits)",
        run=once(_spent, kept=OneKind),
    ),
)
