"""Integer reports through the secure aggregator: the server sees their sum, and no single one.

Local privacy holds all the same, and now also hides each report from a server that follows a few
clients over many rounds. It adds no noise and changes no epsilon.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dp.local import Reports
from dp.local.priv_quant import LevelReports
from protocol.exchange.aggregators import system_rand
from protocol.exchange.in_memory import MemoryRound, Peer
from protocol.exchange.stages import RoundOutcome
from protocol.planning.training_plan import TrainingPlan
from protocol.round.losses import Stage
from protocol.schemes.pairwise import pairwise_of
from secagg import ClientSession, Identity, PrimeField, ServerSession, SessionContext, centre
from secagg.shamir import Rand
from simulations.common.integer_peer import IntegerPeer
from simulations.learning.federated import Invitation, model_digest
from simulations.learning.local_dp.sqsgd import SubsampledReports
from simulations.learning.sources.local import Summed
from sketch import PublicSeed

_LABEL: Final = b"veilsum/levels/1"
_SMALLEST_BITS: Final = 8


class SecureLevels:
    """Runs one round of secure aggregation for each round of training, with real cryptography.

    Args:
        session_id: 16 bytes, of every round.
        rand_of: gives the source of a client's secrets in a round, by its index in the cohort.
    """

    def __init__(
        self,
        plan: TrainingPlan,
        identities: Sequence[Identity],
        session_id: bytes,
        rand_of: Callable[[int], Rand] = system_rand,
    ) -> None:
        self._plan = plan
        self._rand_of = rand_of
        self._identities = identities
        self._session_id = session_id

    def __call__(
        self,
        invitation: Invitation,
        seed: PublicSeed,
        parts: Iterable[tuple[Sequence[int], Reports]],
    ) -> Summed:
        """Add up one round; a `Channel`. The round's dropouts take place."""
        levels: dict[int, NDArray[Any]] = {}
        last: tuple[SubsampledReports, LevelReports] | None = None
        for indices, reports in parts:
            last = with_levels(reports)
            levels.update(zip(indices, last[1].levels, strict=True))
        if last is None:
            return Summed(np.zeros(invitation.model.size), 0)
        whole, randomizer = last[0], last[1].randomizer
        outcome = self._run(invitation, levels, randomizer.levels - 1, seed)
        count = len(outcome.total.survivors)
        total = randomizer.decode_sum(centre(outcome.total.vector), count)
        return Summed(whole.decoded(total), count, outcome.bytes_per_survivor())

    def _run(
        self,
        invitation: Invitation,
        levels: Mapping[int, NDArray[Any]],
        most: int,
        seed: PublicSeed,
    ) -> RoundOutcome:
        """One round with the levels of those who have some, each in 0..most."""
        members = [self._identities[client] for client in invitation.clients]
        length = next(iter(levels.values())).size
        context = self._context(invitation, members, length, most, seed)
        absent = np.zeros(length, np.int64)
        peers: dict[int, Peer] = {
            index: IntegerPeer(
                ClientSession(context, index, member, self._rand_of(index)),
                levels.get(index, absent),
                context.field,
            )
            for index, member in enumerate(members)
        }
        lost = dict(invitation.dropouts)
        for index in peers.keys() - levels.keys():
            # Whoever has nothing to send is lost where it would send it, at the latest.
            lost[index] = min(lost.get(index, Stage.INPUT), Stage.INPUT)
        return MemoryRound(ServerSession(context), context.mode, peers, lost).run()

    def _context(
        self,
        invitation: Invitation,
        members: Sequence[Identity],
        length: int,
        most: int,
        seed: PublicSeed,
    ) -> SessionContext:
        """The round: of the plan, bound to the model, the seed and the range of a level."""
        scheme = pairwise_of(self._plan)
        degree, threshold = scheme.graph(self._plan)
        bound = _LABEL + most.to_bytes(8, "little") + seed.value + model_digest(invitation.model)
        return SessionContext(
            session_id=self._session_id,
            round_number=invitation.number,
            cohort=tuple(member.public for member in members),
            threshold=threshold,
            degree=degree,
            minimum_survivors=self._plan.minimum_survivors,
            mode=scheme.mode,
            tolerated_colluders=self._plan.tolerated_colluders,
            bits=bits_of_sum(len(members) * most),
            length=length,
            application_digest=hashlib.sha256(bound).digest(),
            security_bits=scheme.ring_bits(self._plan),
        )


def with_levels(reports: Reports) -> tuple[SubsampledReports, LevelReports]:
    """Subsampled reports and the levels that they hold."""
    if isinstance(reports, SubsampledReports) and isinstance(reports.inner, LevelReports):
        return reports, reports.inner
    raise TypeError(f"{type(reports).__name__} have no levels to sum")


def bits_of_sum(largest: int) -> int:
    """The smallest field whose centred range holds 0..largest."""
    bits = max(_SMALLEST_BITS, largest.bit_length())
    while PrimeField(bits).largest_centred < largest:
        bits += 1
    return bits
