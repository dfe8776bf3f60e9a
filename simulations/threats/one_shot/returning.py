"""Runs of the product whose noise comes back, and a server that says to whom what it likes.

Clients and members are the product's, with their policies, histories and memories, which outlast
rounds; so are their messages. The server is the product's too, round by round: it lies with what it
announces, and by the order in which it goes on with rounds that it has begun.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

import numpy as np

from protocol import ClientHistory, ClientPolicy, PrivacyGoal, TrainingPlan
from protocol.errors import PolicyError
from protocol.noise.noise import Returned, returned_run
from protocol.planning.policies import client_policy
from protocol.round.member import MemberPolicy, RoundMember, SealingKeys
from protocol.round.one_shot_client import OneShotRoundClient
from protocol.round.one_shot_setup import OneShotSetup
from protocol.round.parameters import RoundParameters
from protocol.round.returned_noise import ReturnedNoise
from protocol.schemes import OneShot
from protocol.schemes.committee import Named
from protocol.schemes.one_shot import one_shot_setup
from secagg import ProtocolError
from secagg.oneshot.committee import Member
from secagg.oneshot.context import OneShotContext
from secagg.oneshot.header import Header
from secagg.oneshot.records import MemberUploads, RoundRecord
from secagg.oneshot.server import OneShotServer
from simulations.audits.base import identities_of, public_keys
from simulations.threats.game.victims import refusal
from simulations.threats.game.weak_clients import replaced, weakened
from simulations.threats.one_shot.weak import StoredNoise, WatchedNoise
from simulations.threats.one_shot.whole_run import Draw, OpenedRound, flaw
from sketch import PublicSeed, SketchSpec

DIMENSION: Final = 20
CLIENTS, MEMBERS, ROUNDS, APART = 6, 6, 12, 6
"""n, s, T, and the minimum number of rounds between participations of a client."""
GOAL: Final = PrivacyGoal(8.0, 1e-5, 2)
SESSION: Final = bytes(16)
MODEL: Final = hashlib.sha256(b"model").digest()

Memory = Callable[[int], WatchedNoise]
AnyNoise = WatchedNoise | StoredNoise


@lru_cache(maxsize=4)
def plan_of(goal: PrivacyGoal = GOAL, rounds: int = ROUNDS, apart: int = APART) -> TrainingPlan:
    """A small run: six clients of which one may be lost and one corrupt, six members."""
    return TrainingPlan(
        goal=goal,
        cohort=CLIENTS,
        tolerated_dropouts=1,
        tolerated_colluders=1,
        clip_l2=1.0,
        noise=Returned(rounds=rounds, apart=apart),
        scheme=OneShot(committee=Named(size=MEMBERS, corrupt=1, away=0)),
        error_share=0.2,
    )


@lru_cache(maxsize=16)
def parameters_of(plan: TrainingPlan) -> RoundParameters:
    """Of all rounds of a plan."""
    return plan.calibrate(SketchSpec.identity(DIMENSION), MODEL, PublicSeed(bytes(32)))


def noise_of(parameters: RoundParameters) -> ReturnedNoise:
    """The terms of the noise that comes back."""
    if parameters.returned is None:
        raise AssertionError("noise comes back in these runs")
    return parameters.returned


def with_noise(plan: TrainingPlan, **terms: Any) -> RoundParameters:
    """The parameters of a plan with other terms of the noise that comes back."""
    right = parameters_of(plan)
    return replace(right, returned=replace(noise_of(right), **terms))


class KeyedParties:
    """Clients and two committees, with their keys."""

    def __init__(self, seed: int, clients: int, members: int) -> None:
        self.clients = identities_of(seed, clients)
        self.committees = [identities_of(seed, members, f"committee {k}") for k in range(2)]
        self.keys = [[SealingKeys(each, SESSION) for each in some] for some in self.committees]
        self.registry = frozenset(public_keys(self.clients))

    def named(self, *committees: int) -> list[bytes]:
        """The members of some committees, as policies pin them."""
        return [key for k in committees for key in public_keys(self.committees[k])]

    def invited(self, committee: int) -> tuple[tuple[bytes, ...], list[Member], bytes]:
        """Cohort, members and session, as a round is set up with them."""
        members = [keys.entry for keys in self.keys[committee]]
        return public_keys(self.clients), members, SESSION


class ReturningRun(KeyedParties):
    """Clients, two committees, and all that they remember.

    Attributes:
        plan: of the run, as its server announces it.
        counting: whether clients have a goal, and remember; if not, the server has new ones for
            each round.
    """

    def __init__(
        self,
        seed: int,
        memory: Memory = WatchedNoise,
        plan: TrainingPlan | None = None,
        *,
        counting: bool = False,
    ) -> None:
        super().__init__(seed, CLIENTS, MEMBERS)
        self.plan = plan or plan_of()
        self.counting = counting
        self.histories = [ClientHistory(GOAL) for _ in self.clients]
        self.member_histories = [[ClientHistory() for _ in range(MEMBERS)] for _ in range(2)]
        self.memories: list[list[AnyNoise]] = [
            [memory(j) for j in range(MEMBERS)] for _ in range(2)
        ]
        self.refusals: Counter[str] = Counter()
        self.opened: list[OpenedRound] = []

    def policy(self, **changes: Any) -> ClientPolicy:
        """Of every client, who trusts both committees."""
        return replace(client_policy(plan_of(), DIMENSION, self.named(0, 1)), **changes)

    def setup(
        self,
        number: int,
        records: Sequence[RoundRecord] = (),
        *,
        committee: int = 0,
        parameters: RoundParameters | None = None,
        returning: bool = True,
        fewest_returning: int = 0,
    ) -> OneShotSetup:
        """A round as announced."""
        parameters = parameters or parameters_of(self.plan)
        uploads = MemberUploads(
            fewest=returned_run(self.plan).fewest_members,
            returning=returning and bool(records),
            fewest_returning=fewest_returning,
            block=parameters.block_digest(),
            records=tuple(records),
        )
        invited = self.invited(committee)
        return one_shot_setup(self.plan, parameters, *invited, number, uploads=uploads)

    def begin(
        self,
        setup: OneShotSetup,
        committee: int = 0,
        absent: Collection[int] = (),
        clients: int = CLIENTS,
    ) -> BegunRound:
        """Announce a round, and collect uploads."""
        return BegunRound(self, setup, committee, absent, clients)

    def upload(self, u: int, setup: OneShotSetup, policy: ClientPolicy | None = None) -> bytes:
        """What a client sends, an update of zeros; nothing if it refuses, which is counted."""
        if not self.counting:
            policy, self.histories[u] = self.policy(goal=None), ClientHistory()
        client = OneShotRoundClient(
            self.clients[u], self.registry, policy or self.policy(), self.histories[u]
        )
        try:
            client.join(setup.announce(u), MODEL)
            return client.submit(np.zeros(setup.parameters.sketch.dimension))
        except (PolicyError, ProtocolError) as error:
            self.told(error)
            return b""

    def member(self, j: int, committee: int = 0, policy: MemberPolicy | None = None) -> RoundMember:
        """A member that has no round yet, and remembers the run."""
        return RoundMember(
            self.committees[committee][j],
            self.keys[committee][j],
            policy or member_policy(self),
            self.member_histories[committee][j],
            noise=self.memories[committee][j],
        )

    def flaw(self) -> str:
        """What is wrong with the sums that were opened; see `whole_run.flaw`."""
        return flaw(self.opened, self.setup(0).run_events.parts)

    def told(self, error: Exception) -> None:
        """Count a refusal."""
        name = getattr(error, "parameter", "")
        self.refusals[f"{refusal(error)} {name}".strip()] += 1


class BegunRound:
    """A round whose uploads the server has; it goes on when and with whom it likes."""

    def __init__(
        self,
        run: ReturningRun,
        setup: OneShotSetup,
        committee: int,
        absent: Collection[int],
        clients: int,
    ) -> None:
        self._run, self.setup, self._committee = run, setup, committee
        sent = {u: run.upload(u, setup) for u in range(clients)}
        self.uploads = {u: data for u, data in sent.items() if data}
        self._seats: dict[int, RoundMember] = {}
        for j in range(MEMBERS):
            if j in absent:
                continue
            member = run.member(j, committee)
            try:
                self.uploads[CLIENTS + j] = member.add_noise(setup.announce_to_member(j))
            except (PolicyError, ProtocolError) as error:
                run.told(error)
                continue
            self._seats[j] = member
        self._server: OneShotServer | None = None

    def check(self, leave_out: Collection[int] = (), **weak: Any) -> BegunRound:
        """Show members the uploads, up to their complaints."""
        context: OneShotContext = self.setup.context
        if weak:
            context = weakened(context, **weak)
        self._server = OneShotServer(context, self.setup.known_cohort())
        for place, data in self.uploads.items():
            if place not in leave_out:
                # This server takes whatever it is sent; what counts is what members take.
                with replaced((Header, "may_return", lambda *_: True)):
                    self._server.receive_upload(place, data)
        return self.go_on()

    def go_on(self) -> BegunRound:
        """Close the server's stage, and have members answer its messages."""
        if self._server is None:
            return self
        try:
            for j, message in list(self._server.close_round_bytes()):
                if j not in self._seats:
                    continue
                try:
                    self._server.receive_from_member(j, self._seats[j].receive(message))
                except (PolicyError, ProtocolError) as error:
                    self._run.told(error)
        except ProtocolError as error:
            self._run.told(error)
            self._server = None
        return self

    @property
    def record(self) -> RoundRecord | None:
        """What members were asked to sign for; None if they were not."""
        return self._server.record if self._server else None

    def open(self) -> RoundRecord | None:
        """Open the sum, which is noted; None if it does not open."""
        if self._server is None:
            return None
        try:
            self._server.open()
        except ProtocolError as error:
            self._run.told(error)
            return None
        record = self.record
        if record is not None:
            self._run.opened.append(self._opened(record))
        return record

    def through(self, **weak: Any) -> RoundRecord | None:
        """The round from its uploads to its end."""
        return self.check(**weak).go_on().go_on().open()

    def _opened(self, record: RoundRecord) -> OpenedRound:
        context = self.setup.context
        memories = self._run.memories[self._committee]
        noise: dict[int, tuple[Draw, Draw | None]] = {
            # The first member works for the server.
            j: memories[j].used[context.hash]
            for j in record.entered
            if j > 0
        }
        uploads = context.member_uploads
        return OpenedRound(uploads.records if uploads else (), record, noise)


def member_policy(run: ReturningRun) -> MemberPolicy:
    """What every member insists on."""
    plan = plan_of()
    return MemberPolicy(
        minimum_survivors=plan.minimum_survivors,
        tolerated_colluders=plan.tolerated_colluders,
        corrupt=returned_run(plan).corrupt_members,
        registry=run.registry,
        fewest_members=returned_run(plan).fewest_members,
    )
