"""A28: two rounds at once on one ledger, one history, and one session told two stories; A73.

Threads meet at the worst moment: every racer waits for the other where a check has passed and
nothing is written yet. Who has to wait for the other before it comes there does not meet it, and
goes on alone after a moment.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from threading import Barrier, BrokenBarrierError
from typing import Any, Final

import numpy as np

from dp import Event, Ledger, LedgerError, PrivacyError
from protocol import (
    ClientHistory,
    IdealAggregator,
    PrivacyGoal,
    PrivateTraining,
    RoundSetup,
    TrainingPlan,
)
from protocol.exchange.stages import PEER_ERRORS
from protocol.round.round_events import RoundEvents
from protocol.round.setup import RoundEncoding
from protocol.training.local import named_identities
from protocol.training.records import Records
from secagg import ClientSession, SessionContext
from secagg.framing import encode_set
from secagg.keys import Identity
from secagg.pairwise.client_states import Fresh, State
from secagg.pairwise.messages import Confirmation, SurvivorSet
from secagg.shamir import Rand
from simulations.audits.base import Figures, identities_of
from simulations.threats.attack import Attack, Effort, Findings, once, refusal
from simulations.threats.game.adversary import Adversary
from simulations.threats.game.contexts import random_inputs
from simulations.threats.game.games import Setting
from simulations.threats.game.victims import SessionMaker, Victims
from simulations.threats.rounds.announced import (
    COHORT,
    DELTA,
    DIMENSION,
    FULL_PRICE,
    SURVIVORS,
    announced_round,
    price,
)
from sketch.controllers import FixedRate

RACERS: Final = 2
SOON: Final = 0.25
"""Seconds that a racer waits for one that should not come."""
SURELY: Final = 300.0
"""Seconds that it waits for one that will come: a busy machine must not decide a race."""
CALLS: Final = 12


class Meeting:
    """Where racers wait for one another."""

    def __init__(self, patience_seconds: float) -> None:
        self._barrier = Barrier(RACERS)
        self._patience_seconds = patience_seconds

    def wait(self) -> None:
        """Until the other is here as well."""
        try:
            self._barrier.wait(self._patience_seconds)
        except BrokenBarrierError:
            return


def race(work: Callable[[int], object]) -> list[object]:
    """What two threads come to: a result, or the typed error."""

    def one(number: int) -> object:
        try:
            return work(number)
        except PEER_ERRORS as error:
            return error

    with ThreadPoolExecutor(RACERS) as pool:
        return list(pool.map(one, range(RACERS)))


@dataclass(frozen=True, slots=True)
class Race:
    """What came of a race."""

    through: int
    refused_with: str
    is_readable: bool = True

    @classmethod
    def of(cls, answers: Sequence[object], is_readable: bool = True) -> Race:
        """Count the answers of all racers."""
        errors = [answer for answer in answers if isinstance(answer, Exception)]
        told = ", ".join(sorted({refusal(error) for error in errors}))
        return cls(len(answers) - len(errors), told, is_readable)

    @property
    def is_lost(self) -> bool:
        """Whether the one thing that may happen once happened twice, or left a ruin."""
        return self.through > 1 or not self.is_readable


# -- a ledger and the records of a run --------------------------------------------------------


class SlowLedger(Ledger):
    """The product's ledger on a disk that takes its time."""

    patience = SOON
    meeting: Meeting | None = None

    def _write(self, data: bytes) -> None:
        if self.meeting is not None:
            self.meeting.wait()
        super()._write(data)


class UnlockedLedger(SlowLedger):
    """Lets two write at once."""

    patience = SURELY
    _is_writing: Any = property(lambda _: False, lambda *_: None)

    def __init__(self, path: Path, descriptor: int) -> None:
        super().__init__(path, descriptor)
        unlocked: Any = nullcontext()
        self._one_writer = unlocked


class Unlocked:
    """Lets two in at once."""

    patience = SURELY

    @contextmanager
    def _alone(self) -> Iterator[None]:
        yield


class HopefulRecords(Unlocked, Records):
    """Looks whether the ledger has grown, and then writes."""

    def write(
        self,
        events: RoundEvents,
        labels: Sequence[str],
        metadata: Mapping[str, Any],
        checked_head: str,
    ) -> None:
        """Whatever was written since the budget was checked."""
        if len(self._ledger.entries()) != self._seen:
            raise LedgerError("another run has written to the ledger")
        self._ledger.append(events.server, metadata)
        self._seen += 1
        self._accounts.record(labels, events)


def race_for_a_ledger(
    opened: type[SlowLedger],
    records_of: type[Records],
    setups: Sequence[RoundSetup],
    goal: PrivacyGoal,
) -> Race:
    """Two rounds are checked against a goal for one, and then charged at once."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.jsonl"
        with opened.open(path) as ledger:
            records = records_of(ledger, goal)
            ledger.meeting = Meeting(opened.patience)
            checked = Barrier(RACERS)

            def one(number: int) -> float:
                charge = records.prepare(setups[number], number, None)
                checked.wait(SURELY)
                charge(range(COHORT))
                return records.epsilons(0).server

            answers = race(one)
        try:
            Ledger.open(path).close()
        except LedgerError:
            return Race.of(answers, is_readable=False)
    return Race.of(answers)


# -- a client's history -----------------------------------------------------------------------


class SlowHistory(ClientHistory):
    """The product's history on a host that takes its time."""

    patience = SOON

    def __init__(self, goal: PrivacyGoal) -> None:
        super().__init__(goal)
        self.meeting = Meeting(self.patience)

    def _pay(self, setup: RoundEncoding, event: Event, remembered: Mapping[str, Any]) -> None:
        self.meeting.wait()


class UnlockedHistory(SlowHistory):
    """Lets two charge at once."""

    patience = SURELY

    def __init__(self, goal: PrivacyGoal) -> None:
        super().__init__(goal)
        unlocked: Any = nullcontext()
        self._lock = unlocked


def race_for_a_history(
    kept: type[SlowHistory], setups: Sequence[RoundSetup], goal: PrivacyGoal
) -> Race:
    """Two rounds that were answered are charged at once, and the goal is for one."""
    history = kept(goal)
    return Race.of(race(lambda number: history.charge(setups[number])))


# -- a session --------------------------------------------------------------------------------


class SlowSession(ClientSession):
    """The product's session in an interpreter that changes threads at the worst moment."""

    patience = SOON
    meeting: Meeting | None = None
    _kept: State = Fresh()

    @property
    def _state(self) -> State:
        state = self._kept
        if self.meeting is not None:
            self.meeting.wait()
        return state

    @_state.setter
    def _state(self, state: State) -> None:
        self._kept = state


class UnlockedSession(Unlocked, SlowSession):
    """Lets two take its state at once."""


def race_for_a_session(session: type[SlowSession], seed: int) -> Race:
    """A client whose input is masked is told two survivor sets at once."""
    rng = np.random.default_rng(seed)
    context = Setting().context(0)
    made: dict[int, SlowSession] = {}

    def make(context: SessionContext, u: int, identity: Identity, rand: Rand) -> ClientSession:
        made[u] = session(context, u, identity, rand)
        return made[u]

    maker: SessionMaker = make
    victims = Victims(context, random_inputs(rng, context), [], rng.bytes(8), maker)
    server = Adversary(victims, rng)
    server.advertise()
    server.collect_bundles()
    server.deliver()
    everybody, target = server.everybody, server.target
    stories = [everybody, tuple(u for u in everybody if u != everybody[-1])]
    made[target].meeting = Meeting(session.patience)

    def tell(number: int) -> object:
        bitmap = encode_set(stories[number], context.size)
        answer = made[target].receive(SurvivorSet(server.tag, bitmap))
        if not isinstance(answer, Confirmation):
            raise TypeError(f"a survivor set was answered with {type(answer).__name__}")
        return answer

    return Race.of(race(tell))


# -- all three --------------------------------------------------------------------------------


def two_rounds(seed: int) -> tuple[list[RoundSetup], PrivacyGoal]:
    """Two rounds, and a goal that is more than enough for one and not quite for both."""
    identities = identities_of(seed, COHORT)
    setups = [announced_round(identities, bytes(32), FULL_PRICE, seed, n) for n in range(2)]
    return setups, PrivacyGoal(0.9 * price(setups[0], 2), DELTA, 2)


def shared_records(effort: Effort, seed: int) -> Findings:
    """A28: let two rounds race for one ledger, one history and one session."""
    setups, goal = two_rounds(seed)
    real = {
        "ledger": race_for_a_ledger(SlowLedger, Records, setups, goal),
        "history": race_for_a_history(SlowHistory, setups, goal),
        "session": race_for_a_session(SlowSession, seed),
    }
    twin = {
        "ledger": race_for_a_ledger(UnlockedLedger, HopefulRecords, setups, goal),
        "history": race_for_a_history(UnlockedHistory, setups, goal),
        "session": race_for_a_session(UnlockedSession, seed),
    }
    return Findings(
        {
            "succeeded": any(found.is_lost or found.through == 0 for found in real.values()),
            "refused_with": "; ".join(f"{name}: {f.refused_with}" for name, f in real.items()),
            **{f"{name}_through": found.through for name, found in real.items()},
            "ledger_opens": real["ledger"].is_readable,
        },
        {
            "succeeded": all(found.is_lost for found in twin.values()),
            **{f"{name}_through": found.through for name, found in twin.items()},
            "ledger_opens": twin["ledger"].is_readable,
        },
    )


# -- A73 --------------------------------------------------------------------------------------


def averaged(
    seed: int, people: Callable[[Sequence[str]], list[Identity]] = named_identities
) -> Figures:
    """What a server has after twelve sums of the same vectors, on a ledger with a goal for one."""
    vectors = np.random.default_rng(seed).uniform(-1.0, 1.0, size=(COHORT, DIMENSION))
    plan = TrainingPlan(
        goal=PrivacyGoal(1.0, DELTA, 1),
        cohort=COHORT,
        tolerated_dropouts=COHORT - SURVIVORS,
        tolerated_colluders=0,
        clip_l2=DIMENSION**0.5,
    )
    names = [f"client {number}" for number in range(COHORT)]
    sums, told, noise = [], "", 0.0
    with tempfile.TemporaryDirectory() as folder, Ledger.open(f"{folder}/ledger.jsonl") as ledger:
        for _ in range(CALLS):
            cohort = [person.public for person in people(names)]
            training = PrivateTraining(plan, DIMENSION, FixedRate(1.0), IdealAggregator(), ledger)
            try:
                result = training.run_round(cohort, bytes(32), vectors.__getitem__)
            except PrivacyError as refused:
                told = refusal(refused)
                continue
            sums.append(result.release.update)
            noise = result.release.noise_variance**0.5
    error = float(np.sqrt(np.mean((np.mean(sums, axis=0) - vectors.mean(axis=0)) ** 2)))
    return {
        # A twelfth of the variance is 0.29 of the error, give or take 0.03.
        "succeeded": error < 0.5 * noise,
        "refused_with": told,
        "sums": len(sums),
        "error_of_average_over_noise": error / noise,
    }


ATTACKS: Final = (
    Attack(
        id="A28",
        promise="P6",
        name="concurrent rounds",
        title="Two rounds at once on one ledger, history or session count and answer as one",
        says="has two rounds charged in one ledger or history, or one client told two survivor "
        "sets, at the same moment",
        stopped_by="a lock around each check and what it permits; a charge that names the ledger's "
        "head",
        run=shared_records,
    ),
    Attack(
        id="A73",
        promise="P6",
        name="averaging repeated calls",
        title="Calls on one ledger with the same people keep one promise together",
        says="averages twelve sums of the same people, each charged to one ledger with a goal "
        "for one",
        stopped_by="identities that stay the same, by which the ledger counts",
        refused_with="RoundsUsedUpError",
        run=once(averaged, people=lambda names: [Identity.generate() for _ in names]),
    ),
)
