"""What one client has spent in one run whose noise comes back, by its own count.

Such rounds are accounted for together, and a charge grows after its client took part. So the client
remembers when it took part, and with how much; the rest it reads from the records in every
announcement. It counts all that may still come back until the end of the run, which is why its
figure does not grow while it stays away.

Source: docs/correlated-rounds.md, "What a client counts".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dp import BudgetExceededError, UnsupportedEventError
from dp.budget import Budget, replay
from dp.correlated import CorrelatedAccountant
from protocol.errors import PolicyError
from protocol.goal import PrivacyGoal, delta_for_noise
from protocol.round.one_shot_setup import OneShotSetup
from secagg import LocalProtocolError

_UPLOADS_PER_ROUND: Final = 2
"""Uploads for each planned participation: some rounds end before anybody signs for them."""


class RunAccountant(CorrelatedAccountant):
    """The accountant of a run, with the part of delta for aggregation failures set aside."""

    def epsilon(self, delta: float) -> float:
        """Return epsilon of the run at ``delta``, failures included; see `delta_for_noise`."""
        last = self._last
        return super().epsilon(delta_for_noise(delta, last.rounds) if last else delta)


class RunAccount:
    """One client's account of one run.

    Args:
        session_id: of the run.
        goal: the most that the client will ever spend; None counts nothing.
    """

    def __init__(self, session_id: bytes, goal: PrivacyGoal | None) -> None:
        self.session_id = session_id
        self._goal = goal
        self._bounds: dict[int, float] = {}
        self._known = (0, b"")
        self._epsilon = 0.0

    @property
    def epsilon(self) -> float:
        """Spent with the last upload, and all that may still come back; 0 without a goal."""
        return self._epsilon

    def check(self, setup: OneShotSetup, apart: int) -> float:
        """See that the client can take part in a round, whatever becomes of it.

        Args:
            apart: fewest rounds from one participation to the next.

        Returns:
            Epsilon afterwards, as `epsilon`.

        Raises:
            PolicyError: it would take the client beyond its goal; it took part too recently; or the
                records are not those that it knows.
        """
        context = setup.context
        if context.session_id != self.session_id:
            raise PolicyError(
                "session_id",
                "that of another run",
                "that of the run on which this client has begun to spend its goal",
            )
        count, head = self._known
        if head and head not in context.heads[count : count + 1]:
            valid = f"lists whose first {count} records are those that this client knows"
            raise PolicyError("records", "without rounds that this client knows", valid)
        records = context.records
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
        return self._most(setup, bounds, self._goal)

    def charge(self, setup: OneShotSetup, epsilon: float) -> dict[str, Any]:
        """Charge a round, before the client's upload leaves.

        Args:
            epsilon: from `check`, of this very round.

        Returns:
            What has to be remembered beyond a restart; see `restore`.
        """
        context = setup.context
        self._bounds[context.round_number] = setup.parameters.l2_bound
        self._known = len(context.heads) - 1, context.heads[-1]
        self._epsilon = epsilon
        return {
            "l2_bound": setup.parameters.l2_bound,
            "records": self._known[0],
            "head": self._known[1].hex(),
            "epsilon": epsilon,
        }

    def restore(self, round_number: int, remembered: Mapping[str, Any]) -> None:
        """Take in a charge of an earlier process, the latest one last.

        Raises:
            LocalProtocolError: it is none.
        """
        try:
            bound, epsilon = float(remembered["l2_bound"]), float(remembered["epsilon"])
            known = int(remembered["records"]), bytes.fromhex(remembered["head"])
        except (KeyError, TypeError, ValueError) as error:
            raise LocalProtocolError(f"no charge of a run with returned noise: {error}") from None
        self._bounds[round_number] = bound
        self._known, self._epsilon = known, epsilon

    def _most(self, setup: OneShotSetup, bounds: list[float], goal: PrivacyGoal) -> float:
        """The most that the run can come to for this client if it takes part in this round."""
        events, budget = setup.run_events, Budget(goal.epsilon, goal.delta)
        try:
            past = replay(events.past(bounds), RunAccountant())
            ends = events.worst(setup.parameters.l2_bound)
            return max(budget.check(past, end) for end in ends)
        except BudgetExceededError as error:
            raise PolicyError(
                "epsilon", f"{error.requested:.6g} in all", f"at most {error.budget:.6g} in all"
            ) from None
        except (UnsupportedEventError, ValueError) as error:
            raise PolicyError("records", str(error), "those of rounds that can be run") from None
