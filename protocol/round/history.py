"""What one client remembers from round to round, so that no server can make it forget.

A policy looks at one announcement at a time. Two attacks need a memory: announcing the same round
twice, to get two sums that differ in one client, and announcing one harmless round after the other
until the harm adds up. That harm is what a sum costs, once an update has left, and what the ring of
a round, or the draw of its committee, may fail with, once the round was joined: a server can drop
round after round until a ring suits it. The memory is the client's own. It lives as long as its
identity does; a client that loses it must take a new identity, or trust the server's count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, Final, NoReturn

from dp import Event
from protocol.errors import PolicyError
from protocol.goal import PrivacyGoal
from protocol.round.account import Account, IndependentAccount
from protocol.round.draw_policy import DrawPolicy
from protocol.round.one_process import OneProcess
from protocol.round.setup import RoundEncoding
from secagg import ParameterError

_ONE_KIND: Final = (
    "of the kind that this client has spent its goal on so far: the two are not counted together"
)


@dataclass(frozen=True, slots=True)
class Failure:
    """What may go wrong by chance with secure aggregation, of which delta has a part.

    Attributes:
        probability: of a bad ring in one round, or of a bad draw in all rounds together.
        beacon: of draws, whether they have one: each kind is counted once; None for a ring.
    """

    probability: float
    beacon: bool | None = None


class ClientHistory:
    """The rounds that one client has answered, and what its own count says they cost.

    The client counts for itself and for the worst case: the fewest survivors that it agreed to,
    without the noise of the colluders that it agreed to tolerate. A round is charged when the
    client hands over its masked update, whatever becomes of the round afterwards: the client
    cannot know whether others released the sum. What its ring or its draw may fail with is counted
    when the client joins, and all rounds joined may fail with as much together as the goal sets
    aside.

    It grows by one pair of a session and a number for every round answered. Threads may share it. A
    forked process has a copy that does not see what the other goes on to spend, so it is refused
    there, and it is neither copied nor pickled.

    Args:
        goal: the most that this client will ever spend, with the split of delta that goes with it;
            None counts nothing.
        earlier: rounds of the goal that were spent elsewhere, and are not to be spent again.

    Raises:
        ParameterError: `earlier` without a goal, or negative.
    """

    def __init__(self, goal: PrivacyGoal | None = None, earlier: int = 0) -> None:
        if earlier < 0 or (earlier and goal is None):
            raise ParameterError("earlier", earlier, "0, or with a goal a number of its rounds")
        self._answered: set[tuple[bytes, int]] = set()
        self._goal = goal
        self._earlier = earlier
        # Of the one kind of noise that the client has spent its goal on.
        self._account: Account | None = IndependentAccount(goal, earlier) if earlier else None
        # Exact: as many rounds as the goal has, each with its whole share, must fit.
        self._rings = earlier * Fraction(goal.reserve.aggregation) if goal else Fraction(0)
        self._draws: set[Failure] = set()
        # Rounds may overlap, and each must see what the others have spent.
        self._lock = OneProcess("a client's history")

    def __reduce__(self) -> NoReturn:
        """Refuse to be copied: two counts of one budget each see half of what is spent."""
        raise TypeError(
            "a client's history cannot be copied or pickled: there must be only one count"
        )

    @property
    def goal(self) -> PrivacyGoal | None:
        """The most that this client will ever spend."""
        return self._goal

    @property
    def earlier(self) -> int:
        """Rounds of the goal that were spent elsewhere."""
        return self._earlier

    @property
    def epsilon(self) -> float:
        """Spent so far, by the client's own count, at the goal's delta; 0 without a goal.

        What was spent elsewhere is not in it.

        Raises:
            LedgerError: as for `answer`.
        """
        with self._lock:
            return self._account.epsilon if self._account else 0.0

    @property
    def rounds(self) -> int:
        """Rounds charged against the goal, and spent elsewhere; 0 without a goal.

        Raises:
            LedgerError: as for `answer`.
        """
        with self._lock:
            return self._account.rounds if self._account and self._goal else 0

    def answer(
        self,
        setup: RoundEncoding,
        *,
        keeps_time: bool = False,
        apart: int = 1,
        draw: DrawPolicy | None = None,
    ) -> None:
        """Enter a round as answered, before anything is sent.

        Args:
            keeps_time: whether the client has a clock, so that the round's lifetime bounds how many
                rings a server can try.
            apart: minimum number of rounds between participations in a run whose noise comes back.
            draw: what the client insists on in the draw of the committee, if it was drawn.

        Raises:
            PolicyError: it would take the client beyond its goal, and is not entered; or it was
                answered before, or comes too soon.
            LedgerError: the history is that of the process that this one was forked from, or this
                thread is at it already, and a signal handler or a callback asks.
        """
        context = setup.context
        failure = Failure(setup.ring_failure(keeps_time=keeps_time))
        if draw is not None:
            failure = Failure(draw.failure, beacon=draw.beacon_of is not None)
        with self._lock:
            self._account_for(setup).check(setup, apart)
            self._check_failures(failure)
            if not self._enter(context.session_id, context.round_number, failure):
                valid = "a number it has not answered before"
                raise PolicyError("round_number", context.round_number, valid)
            self._count(failure)

    def enter(self, session_id: bytes, round_number: int) -> None:
        """Enter a round that one will answer as a member of its committee, before anything is sent.

        A member keeps a history of its own for this, also if it is a client as well: it signs one
        set of uploads for each session and number, whatever the context.

        Raises:
            PolicyError: it was entered before.
            LedgerError: as for `answer`.
        """
        with self._lock:
            if not self._enter(session_id, round_number, Failure(0.0)):
                valid = "a number it has not signed for before"
                raise PolicyError("round_number", round_number, valid)

    def has_entered(self, session_id: bytes, numbers: Iterable[int]) -> bool:
        """Whether one of these rounds of a session was entered."""
        with self._lock:
            return any(self._has(session_id, number) for number in numbers)

    def charge(self, setup: RoundEncoding) -> None:
        """Charge a round, before the client's masked update leaves.

        Raises:
            PolicyError: other rounds have used up the goal in the meantime; nothing is charged.
            LedgerError: as for `answer`.
        """
        with self._lock:
            account = self._account_for(setup)
            epsilon = account.check(setup)
            self._account = account
            account.charge(setup, epsilon, partial(self._pay, setup))

    def _account_for(self, setup: RoundEncoding) -> Account:
        """The account of a round's kind of noise."""
        account = setup.released.account(self._goal)
        if self._account is None or not self._account.has_spent:
            return account
        if type(account) is not type(self._account):
            raise PolicyError("returns", account.NOISE, _ONE_KIND)
        return self._account

    def _enter(self, session_id: bytes, round_number: int, failure: Failure) -> bool:
        """Enter a round as answered; False if it was before. Called with the lock held."""
        pair = (session_id, round_number)
        known = pair in self._answered
        self._answered.add(pair)
        return not known

    def _has(self, session_id: bytes, round_number: int) -> bool:
        """Whether a round was entered. Called with the lock held."""
        return (session_id, round_number) in self._answered

    def _pay(self, setup: RoundEncoding, event: Event, remembered: Mapping[str, Any]) -> None:
        """What has to happen before a round is charged; nothing here. Called with the lock held."""

    def _count(self, failure: Failure) -> None:
        """Take in what a round that was joined may fail with."""
        if failure.beacon is None:
            self._rings += Fraction(failure.probability)
        else:
            self._draws.add(failure)

    def _check_failures(self, failure: Failure) -> None:
        """See that all rounds joined fail with no more than the goal sets aside."""
        if self._goal is None or not failure.probability or failure in self._draws:
            return
        together = self._rings + Fraction(failure.probability)
        together += sum(Fraction(draws.probability) for draws in self._draws)
        share = self._goal.reserve.aggregation
        if together > self._goal.rounds * Fraction(share):
            raise PolicyError(
                "security_bits",
                "too few: rings and draws of all rounds joined so far and of this one would fail "
                f"with probability {float(together):.3g}",
                f"at most {self._goal.rounds * share:.3g} together: more bits, or for rings a "
                "lifetime and a clock to keep it by",
            )
