"""Runs whose noise comes back, for tests of `protocol`: a plan, its clients, its committee."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
from one_shot_rounds import Stream, identity, secret
from one_shot_worlds import DIGEST, DIMENSION, GOAL, SESSION, derived, known_key, rounding

from dp import Ledger, NoiseSeed
from protocol.exchange.aggregators import IdealAggregator
from protocol.exchange.one_shot import MemberStage, OneShotAggregator
from protocol.noise.noise import Independent, Returned, returned_run
from protocol.noise.returned import member_uploads
from protocol.planning.policies import client_policy
from protocol.planning.training_plan import TrainingPlan
from protocol.round.history import ClientHistory
from protocol.round.member import RoundMember
from protocol.round.one_shot_client import OneShotRoundClient
from protocol.round.one_shot_setup import OneShotAnnouncement, OneShotSetup
from protocol.schemes.committee import Named
from protocol.schemes.one_shot import local_committee, one_shot_setup
from protocol.training.private import PrivateTraining, TrainingState
from secagg.oneshot.records import RoundRecord
from sketch import PublicSeed, SketchSpec
from sketch.controllers import FixedRate
from tests.doubles.plans import plan_of_words

N, MEMBERS, APART, ROUNDS = 8, 8, 4, 12
HEAD = len(b"one-shot") + 1
EVERYBODY = tuple(range(MEMBERS))


def plan_of(**changes: Any) -> TrainingPlan:
    """Eight clients a round, one may be lost, each in every fourth of twelve rounds.

    Of eight members one may be corrupt, another away.
    """
    terms: dict[str, Any] = {
        "goal": GOAL,
        "cohort": N,
        "tolerated_dropouts": 1,
        "tolerated_colluders": 1,
        "clip_l2": 1.0,
        "committee": Named(size=MEMBERS, corrupt=1, away=1),
        "noise": Returned(rounds=ROUNDS, apart=APART),
        "error_share": 0.1,
    }
    if "scheme" in changes:
        del terms["committee"]
    return plan_of_words({**terms, **changes})


def record(
    number: int, entered: Sequence[int] = EVERYBODY, returned: Sequence[int] = (), clients: int = N
) -> RoundRecord:
    """What was signed for in a round."""
    return RoundRecord(number, clients, tuple(entered), tuple(returned))


def changed(announcement: bytes, **changes: Any) -> bytes:
    """An announcement with other words in it; those of `returns` by their own names."""
    read = OneShotAnnouncement.read(announcement)
    returns = changes.pop("returns", {})
    if isinstance(returns, dict) and read.returns is not None:
        changes["returns"] = msgspec.structs.replace(read.returns, **returns)
    else:
        changes["returns"] = returns or None
    return announcement[:HEAD] + msgspec.msgpack.encode(msgspec.structs.replace(read, **changes))


class ReturnedWorld:
    """Everybody in one run."""

    def __init__(
        self,
        plan: TrainingPlan | None = None,  # with returned noise
        absences: Mapping[int, Mapping[int, MemberStage]] | None = None,
    ) -> None:
        self.plan = plan or plan_of()
        self.people = [identity("client", i) for i in range(N * APART)]
        self.keys = [each.public for each in self.people]
        named = [identity("member", i) for i in range(MEMBERS)]
        self.committee = local_committee(self.plan, self.people, named, known_key)
        self.policy = client_policy(self.plan, DIMENSION, self.committee.named)
        self.absences = dict(absences or {})
        self.real = OneShotAggregator(
            self.people,
            self.policy,
            self.committee,
            noise=rounding,
            rand_of=lambda i: Stream("client", i),
            absences=lambda number: self.absences.get(number, {}),
        )

    def cohort(self, number: int) -> list[bytes]:
        """The clients of a round: each group in its turn."""
        first = number % APART * N
        return self.keys[first : first + N]

    def setup(
        self,
        number: int = 0,
        *records: RoundRecord,
        cohort: int | None = None,  # of another round
        session: bytes = SESSION,
        **changes: Any,
    ) -> OneShotSetup:
        """The round of a number, after these records."""
        terms = {name: changes.pop(name) for name in ("opened", "in_turn") if name in changes}
        parameters = self.plan.calibrate(
            SketchSpec.identity(DIMENSION), DIGEST, PublicSeed(secret("seed"))
        )
        uploads = member_uploads(
            returned_run(self.plan), parameters, records, **{"opened": True, **terms}
        )
        if changes:
            uploads = replace(uploads, **changes)
        keys = self.cohort(number if cohort is None else cohort)
        members = self.committee.members(session, keys, number)
        return one_shot_setup(
            self.plan, parameters, keys, members, session, number, uploads=uploads
        )

    def plain(self, number: int = 0) -> OneShotSetup:
        """A round of the first clients and the same members whose noise stays."""
        plan = plan_of(noise=Independent(mechanism="discrete-gaussian"))
        parameters = plan.calibrate(
            SketchSpec.identity(DIMENSION), DIGEST, PublicSeed(secret("seed"))
        )
        members = self.committee.members(SESSION, self.cohort(0), number)
        return one_shot_setup(plan, parameters, self.cohort(0), members, SESSION, number)

    def client(self, index: int = 0, history: ClientHistory | None = None, **options: Any) -> Any:
        """One client, by its place among all."""
        return OneShotRoundClient(
            self.people[index],
            frozenset(self.keys),
            options.pop("policy", self.policy),
            history or ClientHistory(self.policy.goal),
            Stream("client", index),
            **options,
        )

    def member(self, index: int = 0) -> RoundMember:
        """One member for one round."""
        return self.committee.member(SESSION, identity("member", index).public)

    def ideal(self, noise_of: Callable[[bytes, int, int], NoiseSeed]) -> IdealAggregator:
        """The ideal functionality with the seeds that real clients derive."""
        return IdealAggregator(
            committee=self.committee,
            members_noise=noise_of,
            away=lambda number: {
                member
                for member, stage in self.absences.get(number, {}).items()
                if stage is MemberStage.NOISE
            },
            noise=rounding,
            bound=self._bound,
        )

    _setup: OneShotSetup | None = None

    def of(self, setup: OneShotSetup) -> ReturnedWorld:
        """Tell the ideal clients which round is played."""
        self._setup = setup
        return self

    def _bound(self, index: int, rounded: bytes) -> Sequence[NoiseSeed]:
        setup = self._setup
        if setup is None:
            raise AssertionError("say of which round")
        number = self.keys.index(setup.known_cohort().keys[index])
        return derived(setup, index, rounded, number)

    def training(
        self, ledger: Ledger, aggregator: Any = None, state: TrainingState | None = None
    ) -> PrivateTraining:
        """A run of the plan."""
        return PrivateTraining(
            self.plan,
            DIMENSION,
            FixedRate(1.0),
            aggregator or self.real,
            ledger,
            state,
            rand=lambda count: SESSION[:count],
        )


def remembered(world: ReturnedWorld) -> Callable[[bytes, int, int], NoiseSeed]:
    """The seeds that the real members have in their memories."""

    def seed_of(session: bytes, number: int, member: int) -> NoiseSeed:
        memory = world.committee._noise[identity("member", member).public]._read(session)
        (found,) = [each.seed for each in memory.added if each.round_number == number]
        return NoiseSeed(found)

    return seed_of


def noise_of(session: bytes, number: int, member: int) -> NoiseSeed:
    """Known seeds of members."""
    return NoiseSeed(secret("noise of", session, number, member))


def open_ledger(folder: Path) -> Ledger:
    """A ledger in a folder."""
    return Ledger.open(folder / "ledger.jsonl")
