"""Which parts of a round's noise are counted, when nobody knows who is corrupt.

Clients add noise that stays; members of a standing committee add noise of which they take the
noise of the round before back. Of the n_C clients and c members who work for the server it is
known only how many they are, so each number of a record is counted as if they had been where that
hurts most: see docs/correlated-noise.md, "What is counted". Pure arithmetic on public numbers.

Source: docs/correlated-noise.md, "Aligned contributions are the worst": parts may be left out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dp.checks import require_between_0_and_1, require_float, require_integer, require_positive
from dp.correlated.event import LARGEST_ROUNDS, CorrelatedRelease
from dp.correlated.theorem import Promises


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundParts:
    """What the record of a round says of the noise in it.

    Args:
        clients: whose uploads are in the sum.
        entered: m_t, members whose uploads, and so whose fresh noise, are in the sum.
        returned: rho, those of them that also took back their noise of the round before, and whose
            noise had entered there; 0 in the first round.
    """

    clients: int
    entered: int
    returned: int = 0

    def __post_init__(self) -> None:
        require_integer("clients", self.clients, 0)
        require_integer("entered", self.entered, 0)
        # Whoever takes noise back is in the sum, and adds fresh noise with the same upload.
        require_integer("returned", self.returned, 0, self.entered)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Who adds noise in a run, how much, and how many of them may work for the server.

    Args:
        client_variance: V_b, parameter of the noise of each client, integer squares, > 0.
        member_variance: V_a, that of each member.
        clients: n, most of a round.
        members: s, of the committee.
        corrupt_clients: n_C, clients of a round that may work for the server.
        corrupt_members: c, members that may, the same in all rounds.
        fewest_clients: n_min, fewest in a sum, above n_C.
        fewest_members: a_min, fewest in a sum, above 2c.
        rounds: T, the horizon.
        dimension: d, coordinates of a sum.
    """

    client_variance: float
    member_variance: float
    clients: int
    members: int
    corrupt_clients: int
    corrupt_members: int
    fewest_clients: int
    fewest_members: int
    rounds: int
    dimension: int

    def __post_init__(self) -> None:
        for name in ("client_variance", "member_variance"):
            require_float(name, getattr(self, name))
            require_positive(name, getattr(self, name))
        require_integer("clients", self.clients, 1)
        require_integer("members", self.members, 1)
        require_integer("corrupt_clients", self.corrupt_clients, 0)
        require_integer("corrupt_members", self.corrupt_members, 0)
        fewest = self.corrupt_clients + 1
        require_integer("fewest_clients", self.fewest_clients, fewest, self.clients)
        fewest = 2 * self.corrupt_members + 1
        require_integer("fewest_members", self.fewest_members, fewest, self.members)
        require_integer("rounds", self.rounds, 1, LARGEST_ROUNDS)
        require_integer("dimension", self.dimension, 1)

    @property
    def least_kept(self) -> float:
        """w, variance that surely stays: that of the fewest honest clients."""
        return self.client_variance * (self.fewest_clients - self.corrupt_clients)

    @property
    def least_fresh(self) -> float:
        """F, variance that surely enters in a round."""
        return self.least_kept + self.member_variance * self._counted(self.fewest_members)

    @property
    def largest_return(self) -> float:
        """A, most of one round's counted noise that may come back; it may exceed F - w."""
        return self.member_variance * self._counted(self.members)

    @property
    def smallest_part(self) -> float:
        """v, the least parameter of a single part."""
        return min(self.client_variance, self.member_variance)

    @property
    def most_parts(self) -> int:
        """m, parts of one round."""
        return self.clients + self.members

    @property
    def promises(self) -> Promises:
        """What is fixed about the noise of the run."""
        return Promises(
            rounds=self.rounds,
            dimension=self.dimension,
            smallest_part=self.smallest_part,
            most_parts=self.most_parts,
            kept=self.least_kept,
            fresh=self.least_fresh,
        )

    def divided(self, fresh_variance: float, returned_share: float) -> Parts:
        """The same parties with other noise, of which this is the least that enters in a round.

        Args:
            fresh_variance: F, > 0.
        """
        require_between_0_and_1("returned_share", returned_share)
        honest = self.fewest_clients - self.corrupt_clients
        return replace(
            self,
            client_variance=(1.0 - returned_share) * fresh_variance / honest,
            member_variance=returned_share * fresh_variance / self._counted(self.fewest_members),
        )

    def fresh(self, now: RoundParts) -> float:
        """F_t, what is counted of a round: all clients but n_C, all members but 2c.

        Twice c, because a corrupt member among those who come back hides one who does, and among
        the others one who does not.
        """
        self._check(now)
        honest = now.clients - self.corrupt_clients
        return self.client_variance * honest + self.member_variance * self._counted(now.entered)

    def returned(self, now: RoundParts, before: RoundParts | None) -> float:
        """A_{t-1}, what is counted to have come back: all members who did but c, at most F_{t-1}'s.

        Args:
            before: of round t-1; None if there is none.

        Raises:
            ValueError: the record has more, or fewer, than there may be; or more came back than
                had entered.
        """
        self._check(now)
        entered = 0
        if before is not None:
            self._check(before)
            entered = before.entered
        if now.returned > entered:
            raise ValueError(
                f"returned must be at most {entered}, who entered the round before, "
                f"got {now.returned}"
            )
        honest = max(0, now.returned - self.corrupt_members)
        return self.member_variance * min(honest, self._counted(entered))

    def release(
        self, index: int, now: RoundParts, before: RoundParts | None, l2_sensitivity: float
    ) -> CorrelatedRelease:
        """The round as a ledger holds it, for one client.

        Args:
            index: t, counted from 1 over all rounds of the record.
            before: of round t-1; None for the first round.
            l2_sensitivity: B_t, largest Euclidean norm of the client's contribution, integer
                units; 0.0 for a client that took no part.

        Raises:
            ValueError: the record has more, or fewer, than there may be; more came back than had
                entered; or it is no round of the run.
        """
        if (before is None) != (index == 1):
            raise ValueError(f"before must be left out in round 1 only, got {before} in {index}")
        return CorrelatedRelease(
            index=index,
            fresh_variance=self.fresh(now),
            returned_variance=self.returned(now, before),
            l2_sensitivity=l2_sensitivity,
            dimension=self.dimension,
            rounds=self.rounds,
            least_fresh=self.least_fresh,
            largest_return=self.largest_return,
            smallest_part=self.smallest_part,
            most_parts=self.most_parts,
            least_kept=self.least_kept,
        )

    def worst(self, before: RoundParts | None, fewest_returning: int) -> tuple[RoundParts, ...]:
        """The records of which one is the dearest that a round about to run may turn out to have.

        A charge falls as parts are added, so clients and members are the fewest. It is convex in
        what comes back, so the fewest come back or the most. More than a_min can come back only if
        more are in the sum, each with fresh noise; on that way, up to where all that is counted of
        the round before comes back, the charge is convex as well.

        Args:
            before: of the round before; None for the first round.
            fewest_returning: r_t, fewest members that take back noise which had entered the round
                before. If no more than that had entered, all of them come back.
        """
        require_integer("fewest_returning", fewest_returning, 0, self.members)
        most = 0
        if before is not None:
            self._check(before)
            most = before.entered
        least = min(fewest_returning, most)
        among_fewest = min(self.fewest_members, most)
        # c fewer than all: A_{t-1} is then as large as it gets.
        everything = max(among_fewest, most - self.corrupt_members)
        turns = {least, *(each for each in (among_fewest, everything) if each > least)}
        return tuple(
            RoundParts(
                clients=self.fewest_clients,
                entered=max(self.fewest_members, returned),
                returned=returned,
            )
            for returned in sorted(turns)
        )

    def _counted(self, entered: int) -> int:
        """Of so many members: those that are left for every corrupt set."""
        return max(0, entered - 2 * self.corrupt_members)

    def _check(self, record: RoundParts) -> None:
        """Raise ``ValueError`` unless a round may have such a record."""
        require_integer("clients", record.clients, self.fewest_clients, self.clients)
        require_integer("entered", record.entered, self.fewest_members, self.members)
