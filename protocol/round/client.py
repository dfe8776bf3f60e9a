"""One client in one round: its own policy, its own model, its own noise.

The client never takes a parameter from the server without looking at it: the announcement is held
against the policy, every identity of the cohort against the registry, the round against what the
client has done before, and the model it actually received is hashed into the context.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import Any

from numpy.typing import NDArray

from dp import NoiseSeed
from protocol.errors import PolicyError
from protocol.round.history import ClientHistory
from protocol.round.pipeline import Pipeline
from protocol.round.policy import ClientPolicy, require_means
from protocol.round.rings import UnixClock
from protocol.round.round_time import RoundTime
from protocol.round.setup import RoundSetup
from protocol.round.stored_round import StoredRound, sealed_part
from protocol.round.turns import StoredTurns
from secagg import (
    ClientSession,
    Identity,
    LocalProtocolError,
)
from secagg.keys import os_random
from secagg.pairwise.client_states import Party
from secagg.pairwise.transitions import ClientPhase
from secagg.session import or_abort
from secagg.shamir import Rand
from secagg.storage import StateKeys, StoredStateError
from secagg.storage import discard as discard_session
from secagg.storage import resume as resume_session
from secagg.storage import suspend as suspend_session


class RoundClient:
    """Drives one client through one round; feed it bytes, send what it returns.

    Args:
        identity: our signing key.
        registry: identity keys of all clients that may be in a cohort. The policy's bound on
            colluders is about them.
        policy: what we insist on.
        history: what we have done before, counted against the policy's goal. Pass the same object
            to every round of an identity. With a goal there is no default: a fresh history for
            every client would count each round as the first. Without one, a client that is given
            none remembers nothing.
        rand: source of secrets; leave it alone except to simulate the same round twice.
        clock: tells unix seconds. With it the client leaves a round that has expired, at whatever
            stage, for good; without it no round ever does.
        turns: its coins, if it hides in which round of a block it comes; any round if left out.

    Raises:
        ParameterError: the policy has a goal, and the history does not count against that very one;
            or the policy wants rounds that expire, and there is no clock.
    """

    def __init__(
        self,
        identity: Identity,
        registry: Collection[bytes],
        policy: ClientPolicy,
        history: ClientHistory | None = None,
        rand: Rand = os_random,
        clock: UnixClock | None = None,
        turns: StoredTurns | None = None,
    ) -> None:
        require_means(policy, history, clock)
        self._rand = rand
        self._identity = identity
        self._registry = registry
        self._policy = policy
        self._turns = turns
        self._history = ClientHistory() if history is None else history
        self._time = RoundTime(clock)
        self._joined_round: tuple[ClientSession, Pipeline, RoundSetup] | None = None

    def join(self, announcement: bytes, model_digest: bytes) -> bytes:
        """Answer an announcement.

        Args:
            announcement: from the server.
            model_digest: 32-byte hash of the model that we received for this round.

        Raises:
            RemoteProtocolError: the announcement is malformed.
            PolicyError: it is outside our policy, names strangers, was answered before, has
                expired, or would cost more than we have left.
        """
        if self._joined_round is not None:
            raise LocalProtocolError("this client has already joined a round; make a new one")
        setup = RoundSetup.from_announcement(announcement, model_digest)
        keeps_time = self._time.keeps_time
        self._policy.check(setup, keeps_time=keeps_time)
        if self._history.goal is not None:
            setup.check_failure(self._history.goal, keeps_time=keeps_time)
        self._time.check(setup.context)
        strangers = [key for key in setup.context.cohort if key not in self._registry]
        if strangers:
            raise PolicyError(
                "cohort", f"{len(strangers)} unregistered identities", "only registered ones"
            )
        if self._identity.public not in setup.context.cohort:
            raise PolicyError(
                "cohort", "one without this client", "cohorts that include this client"
            )
        index = setup.context.cohort.index(self._identity.public)
        if self._turns is not None:
            # Nothing was sent, marked or charged.
            self._turns.require(setup.context.session_id, setup.context.round_number)
        self._history.answer(setup, keeps_time=keeps_time)
        session = ClientSession(setup.context, index, self._identity, self._rand)
        self._joined_round = session, Pipeline(setup), setup
        return session.begin_bytes()

    def receive(self, data: bytes) -> bytes | None:
        """Process a message of the server; None means that it waits for our update.

        Raises:
            RemoteProtocolError: it is not what an honest server sends; the session is aborted.
            PolicyError: the round has expired; the session is aborted.
        """
        session, _, setup = self._joined()
        self._leave_if_over(session, setup)
        return session.receive_bytes(data)

    def submit(self, update: NDArray[Any], noise: NoiseSeed | None = None) -> bytes:
        """Encode, mask and return our update.

        Args:
            update: float32|float64[d].
            noise: fresh from the system; leave it alone except to run the same round twice.

        Raises:
            PrivacyError: the update is not finite; the session is aborted.
            ParameterError: it has another shape; the session is aborted.
            PolicyError: other rounds have used up what we had left, or the round has expired; the
                session is aborted.
        """
        session, pipeline, setup = self._joined()
        self._leave_if_over(session, setup)
        with or_abort(session):  # also if the disk is full or the host is interrupted
            removable = [NoiseSeed(seed.expose()) for seed in session.removable_seeds]
            vector = pipeline.encode(update, noise or NoiseSeed.fresh(), removable)
            masked = session.submit_bytes(vector)
            # Charged before the bytes leave, and only if there are bytes.
            self._history.charge(setup)
        return masked

    def abort(self) -> None:
        """Leave the round for good; what it held is forgotten."""
        if self._joined_round is not None:
            self._joined_round[0].abort()

    def suspend(self, keys: StateKeys) -> bytes:
        """Take the round out of this object, for a host that restarts between messages.

        What is stored holds secrets, sealed under our identity and a key of its own; `resume` goes
        on from it, once, and destroys that key. This object is of no use afterwards.

        Args:
            keys: where the host keeps the keys of stored rounds; see `secagg.storage`.

        Raises:
            LocalProtocolError: no round was joined, or it is over.
        """
        session, _, setup = self._joined()
        with or_abort(session):
            self._time.look(setup.context)
        sealed = suspend_session(session, keys, self._time.covered)
        return StoredRound(setup, self._time.seen, sealed).encode()

    def resume(self, stored: bytes, keys: StateKeys) -> None:
        """Go on with a round that was suspended. The history is that of this object.

        The round was held against the policy when it was joined, and no parameter of it can have
        changed since; a policy that has become stricter counts from the next round on. A round that
        was joined with a clock ends by it: a clock that went back does not lengthen it.

        Args:
            stored: what `suspend` returned.
            keys: those that it was suspended with.

        Raises:
            LocalProtocolError: this object has a round already.
            StoredStateError: nothing that `suspend` made for this identity, or resumed before; or
                joined with a clock, which this object lacks: another, with a clock, can resume it.
            PolicyError: the round has expired; what was stored cannot be resumed again.
        """
        if self._joined_round is not None:
            raise LocalProtocolError("this client has already joined a round; make a new one")
        read = StoredRound.decode(stored)
        setup, context = read.setup, read.setup.context
        if self._identity.public not in context.cohort:
            raise StoredStateError("the stored round belongs to another client")
        # Before anything is used up: with the clock that was forgotten, the host tries again.
        time = self._time.resumed(read.seen)
        index = context.cohort.index(self._identity.public)
        party = Party(context, index, self._identity, self._rand)
        session = resume_session(ClientSession, read.sealed, party, keys, time.covered)
        self._time = time
        # Only now: what was stored is used up first, expired or not.
        self._leave_if_over(session, setup)
        self._joined_round = session, Pipeline(setup), setup

    @staticmethod
    def discard(stored: bytes, keys: StateKeys) -> None:
        """Give up a stored round that will not be resumed: nobody can open it any more.

        What `suspend` has not made names no key, and nothing happens. If a stored round may be lost
        or damaged, its key stays: a host that is in one round at a time clears its whole
        `TokenFolder` when it begins another.
        """
        with suppress(StoredStateError):
            discard_session(sealed_part(stored), keys)

    def _leave_if_over(self, session: ClientSession, setup: RoundSetup) -> None:
        with or_abort(session):
            self._time.check(setup.context)

    @property
    def setup(self) -> RoundSetup:
        """Of the round that was joined.

        Raises:
            LocalProtocolError: none was.
        """
        return self._joined()[2]

    @property
    def phase(self) -> ClientPhase:
        """Where the round is; `FRESH` before one is joined."""
        return self._joined_round[0].phase if self._joined_round else ClientPhase.FRESH

    def _joined(self) -> tuple[ClientSession, Pipeline, RoundSetup]:
        if self._joined_round is None:
            raise LocalProtocolError("join a round first")
        return self._joined_round
