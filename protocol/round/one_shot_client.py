"""One client in one one-shot round: it looks at the announcement, encodes, uploads, and is done.

The client never takes a parameter from the server without looking at it. What it cannot look at,
the cohort and what becomes of its upload, it leaves to a committee that its own policy accepts.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from dp import NoiseSeed
from protocol.errors import PolicyError
from protocol.round.announcements import read_announcement
from protocol.round.history import ClientHistory
from protocol.round.one_process import OneProcess
from protocol.round.one_shot_setup import OneShotSetup
from protocol.round.pipeline import Pipeline
from protocol.round.policy import ClientPolicy, require_means
from protocol.round.rings import UnixClock
from protocol.round.round_time import RoundTime
from protocol.round.stored_upload import UploadReceipt, announced_as
from protocol.round.turns import StoredTurns
from secagg import (
    SERVER,
    Identity,
    LocalProtocolError,
    Reason,
    RemoteProtocolError,
)
from secagg.keys import os_random
from secagg.oneshot.client import OneShotClient
from secagg.session import or_abort
from secagg.shamir import Rand


class OneShotRoundClient:
    """Drives one client through one one-shot round.

    Args:
        rand: source of secrets; leave it alone except to simulate the same round twice.
        clock: tells unix seconds; with it the client refuses a round that has expired.
        turns: its coins, if it hides in which round of a block it comes; any round if left out.
    """

    def __init__(
        self,
        identity: Identity,
        registry: frozenset[bytes],
        policy: ClientPolicy,
        history: ClientHistory | None = None,
        rand: Rand = os_random,
        clock: UnixClock | None = None,
        turns: StoredTurns | None = None,
    ) -> None:
        require_means(policy, history, clock)
        self._identity = identity
        self._registry = registry
        self._policy = policy
        self._history = ClientHistory() if history is None else history
        self._rand = rand
        self._turns = turns
        self._time = RoundTime(clock)
        self._lock = OneProcess("a client's upload")
        self._joined_round: tuple[OneShotClient, Pipeline, OneShotSetup, int] | None = None
        self._announced = b""

    @property
    def setup(self) -> OneShotSetup:
        """Of the round that was joined."""
        return self._joined()[2]

    def join(self, announcement: bytes, model_digest: bytes) -> OneShotSetup:
        """Look at an announcement, and enter the round as answered.

        Args:
            model_digest: 32-byte hash of the model that we received for this round.
        """
        if self._joined_round is not None:
            raise LocalProtocolError("this client has already joined a round; make a new one")
        announced = read_announcement(announcement)
        setup = announced.setup(model_digest)
        context = setup.context
        if context.application_digest != announced.digest:
            raise RemoteProtocolError(
                SERVER, Reason.WRONG_CONTEXT, "announced for another model than ours"
            )
        self._policy.check(setup, keeps_time=self._time.keeps_time)
        self._time.check(context)
        index, proof = announced.index, announced.proof
        # Who is a member as well has a place there too, where noise goes in and nothing else.
        if index >= context.invited or not context.is_invited(index, self._identity.public, proof):
            raise PolicyError("cohort", "one without this client", "cohorts that include it")
        if context.committee.of_cohort:
            members = context.committee.members
            strangers = sum(member.identity not in self._registry for member in members)
            if strangers:
                raise PolicyError(
                    "cohort", f"{strangers} unregistered identities", "only registered ones"
                )
        if self._turns is not None:
            # Nothing was sent, marked or charged.
            self._turns.require(context.session_id, context.round_number)
        self._history.answer(
            setup,
            keeps_time=self._time.keeps_time,
            apart=self._policy.apart,
            draw=self._policy.draw,
        )
        session = setup.client(index, self._identity, proof, self._rand)
        self._joined_round = session, Pipeline(setup), setup, index
        self._announced = announced_as(announcement)
        return setup

    def submit(self, update: NDArray[Any], rounding: NoiseSeed | None = None) -> bytes:
        """Encode, mask and return our update: the only message of this client.

        Args:
            update: float32|float64[d].
        """
        session, pipeline, setup, _ = self._joined()
        with self._lock, or_abort(session):  # also if the disk is full or the host is interrupted
            self._time.check(setup.context)
            quantized = pipeline.round(update, rounding or NoiseSeed.fresh())
            own, *removable = session.seeds(quantized.packed())
            vector = pipeline.add_noise(
                quantized,
                NoiseSeed(own.expose()),
                [NoiseSeed(seed.expose()) for seed in removable],
            )
            upload = session.submit_bytes(vector)
            # Charged before the bytes leave, and only if there are bytes.
            self._history.charge(setup)
        return upload

    def resend(self) -> bytes:
        """The upload once more, the same bytes, for a server that did not get it."""
        session = self._joined()[0]
        with self._lock:  # The session has the bytes before they are charged.
            return session.resend_bytes()

    @property
    def own_upload(self) -> tuple[int, bytes]:
        """Our index, and what names our upload: for the member that we may be as well."""
        session, _, _, index = self._joined()
        return index, session.header_digest

    @property
    def receipt(self) -> UploadReceipt:
        """The same, to be stored for that member, and beside the upload."""
        session, _, setup, index = self._joined()
        context = setup.context
        number, digest = context.round_number, session.header_digest
        return UploadReceipt(context.session_id, number, index, digest, self._announced)

    def abort(self) -> None:
        """Leave the round for good; what it held is forgotten."""
        if self._joined_round is not None:
            self._joined_round[0].abort()

    def _joined(self) -> tuple[OneShotClient, Pipeline, OneShotSetup, int]:
        if self._joined_round is None:
            raise LocalProtocolError("join a round first")
        return self._joined_round
