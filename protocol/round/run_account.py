"""What one client has spent in one run whose noise comes back, by its own count.

Such rounds are accounted for together, and a charge grows after its client took part. So the client
remembers when it took part, and with how much; the rest it reads from the records in every
announcement. It counts all that may still come back until the end of the run, which is why its
figure does not grow while it stays away.

Source: docs/correlated-rounds.md, "What a client counts".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from dp import BudgetExceededError, Entry, UnsupportedEventError
from dp.budget import Budget, replay
from dp.correlated import CorrelatedAccountant
from protocol.errors import PolicyError
from protocol.goal import PrivacyGoal, delta_for_noise
from protocol.round.account import Account, Pay
from secagg import LocalProtocolError

if TYPE_CHECKING:
    from protocol.round.returned_events import RunEvents
    from protocol.round.setup import RoundEncoding

RUN: Final = "run"
"""Where a ledger has what an account remembers of a charge, beside its event."""

_UPLOADS_PER_ROUND: Final = 2
"""Uploads for each planned participation: some rounds end before anybody signs for them."""


class RunAccountant(CorrelatedAccountant):
    """The accountant of a run, with the part of delta for aggregation failures set aside."""

    def epsilon(self, delta: float) -> float:
        """Return epsilon of the run at ``delta``, failures included; see `delta_for_noise`."""
        last = self._last
        return super().epsilon(delta_for_noise(delta, last.rounds) if last else delta)


class RunAccount(Account):
    """One client's account of one run.

    Args:
        goal: the most that the client will ever spend; None counts nothing.
        session_id: of the run; None if the first charge that is restored will tell.
    """

    NOISE = "noise that comes back"

    def __init__(self, goal: PrivacyGoal | None, session_id: bytes | None = None) -> None:
        self._session_id = session_id
        self._goal = goal
        self._bounds: dict[int, float] = {}
        self._known = (0, b"")
        self._epsilon = 0.0

    @property
    def rounds(self) -> int:
        """Rounds of the run that this client has taken part in."""
        return len(self._bounds)

    @property
    def epsilon(self) -> float:
        """Spent with the last upload, and all that may still come back; 0 without a goal."""
        return self._epsilon

    def check(self, setup: RoundEncoding, apart: int = 1) -> float:
        """See that the client can take part in a round, whatever becomes of it."""
        events = _run_events(setup)
        if setup.context.session_id != self._session_id:
            raise PolicyError(
                "session_id",
                "that of another run",
                "that of the run on which this client has begun to spend its goal",
            )
        count, head = self._known
        if head and head not in events.heads[count : count + 1]:
            valid = f"lists whose first {count} records are those that this client knows"
            raise PolicyError("records", "without rounds that this client knows", valid)
        records = events.records
        bounds = [self._bounds.get(record.round_number, 0.0) for record in records]
        own = [place for place, bound in enumerate(bounds) if bound]
        if own and len(records) - own[-1] < apart:
            raise PolicyError(
                "apart",
                f"{len(records) - own[-1]} rounds after this client last took part",
                f"at least {apart}",
            )
        if self._goal is None:
            return 0.0
        # The records are the server's word until a committee signs: every upload counts here.
        most = _UPLOADS_PER_ROUND * self._goal.rounds
        if len(self._bounds) >= most:
            raise PolicyError("records", f"of {len(own)} of {most} uploads", "of most of them")
        if len(own) >= self._goal.rounds:
            raise PolicyError(
                "epsilon",
                f"unbounded: all rounds of this client's goal are used up ({self._goal.rounds})",
                f"at most {self._goal.epsilon:.6g} in all",
            )
        return self._most(events, bounds, self._goal)

    def charge(self, setup: RoundEncoding, epsilon: float, pay: Pay) -> None:
        """As `Account.charge` says; counted first, so that an interrupt counts too much."""
        events, bound = _run_events(setup), setup.parameters.l2_bound
        self._bounds[setup.context.round_number] = bound
        self._known = len(events.heads) - 1, events.heads[-1]
        self._epsilon = epsilon
        remembered = {
            "l2_bound": bound,
            "records": self._known[0],
            "head": self._known[1].hex(),
            "epsilon": epsilon,
        }
        pay(events.worst_case, {RUN: remembered})

    def restore(self, entry: Entry) -> None:
        """As `Account.restore` says."""
        try:
            number, remembered = entry.metadata["round"], entry.metadata[RUN]
            session = bytes.fromhex(entry.metadata["session"])
            bound, epsilon = float(remembered["l2_bound"]), float(remembered["epsilon"])
            known = int(remembered["records"]), bytes.fromhex(remembered["head"])
        except (KeyError, TypeError, ValueError) as error:
            raise LocalProtocolError(f"no charge of a run with returned noise: {error}") from None
        self._session_id = self._session_id or session
        self._bounds[number] = bound
        self._known, self._epsilon = known, epsilon

    def _most(self, events: RunEvents, bounds: list[float], goal: PrivacyGoal) -> float:
        """The most that the run can come to for this client if it takes part in this round."""
        budget = Budget(goal.epsilon, goal.delta)
        try:
            past = replay(events.past(bounds), RunAccountant())
            ends = events.worst()
            return max(budget.check(past, end) for end in ends)
        except BudgetExceededError as error:
            raise PolicyError(
                "epsilon", f"{error.requested:.6g} in all", f"at most {error.budget:.6g} in all"
            ) from None
        except (UnsupportedEventError, ValueError) as error:
            raise PolicyError("records", str(error), "those of rounds that can be run") from None


def _run_events(setup: RoundEncoding) -> RunEvents:
    """What a round of a run releases: such an account is made by nothing else."""
    return cast("RunEvents", setup.released)
