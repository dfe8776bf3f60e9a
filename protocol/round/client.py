"""One client in one round: its own policy, its own model, its own noise.

The client never takes a parameter from the server without looking at it: the announcement is held
against the policy, every identity of the cohort against the registry, the round against what the
client has done before, and the model it actually received is hashed into the context.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from dp import BinomialMechanism, NoiseSeed
from dp.coins import MAX_COINS
from dp.mechanisms import MECHANISMS, DistributedMechanism
from dp.sampling.laws import MAX_VARIANCE
from protocol.errors import PolicyError
from protocol.goal import PrivacyGoal
from protocol.round.history import ClientHistory, epsilon_of_rounds
from protocol.round.pipeline import Pipeline
from protocol.round.rings import UnixClock, is_safe
from protocol.round.setup import RoundSetup
from protocol.round.stored_round import StoredRound, covered, sealed_part
from secagg import (
    ClientSession,
    Identity,
    LocalProtocolError,
    Mode,
    ParameterError,
    SessionContext,
)
from secagg.graph_parameters import SECURITY_BITS
from secagg.grinding import CLOCK_SKEW_SECONDS
from secagg.keys import os_random
from secagg.shamir import Rand
from secagg.storage import StateKeys, StoredStateError
from secagg.storage import discard as discard_session
from secagg.storage import resume as resume_session
from secagg.storage import suspend as suspend_session
from secagg.terms import MAX_COHORT
from secagg.transitions import ClientPhase


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientPolicy:
    """What this client insists on, whatever the server says.

    Figures of noise count that of the fewest honest survivors only. Limits of size are checked
    before anything of that size is allocated. Which of these hold against a server that deviates is
    in docs/limitations.md: all of them, since a client that refuses has sent nothing.

    Args:
        minimum_noise_multiplier: smallest ratio of aggregate noise to sensitivity. There is no
            default: 0.0 accepts rounds without any privacy beyond the sum, and has to be said.
        goal: rounds like this one, `goal.rounds` of them together, must stay within the goal. The
            multiplier alone does not notice noise that is too coarse; this does. None looks at the
            multiplier only. The rounds that really take place are added up by the `ClientHistory`
            with this goal that every client with a goal must have.
        minimum_survivors: smallest sum it will be part of.
        largest_clip_l2: largest clip bound, in the units of the update.
        smallest_cohort: fewest clients that a round invites.
        largest_cohort: most of them; what a client sends, holds and checks grows with them.
        registry_colluders: most clients of the whole registry that may work for the server. It
            picks the cohort, so all of them may be in it: a round whose thresholds and noise
            tolerate fewer is refused, however few of them a random cohort would hold.
        minimum_own_noise_multiplier: smallest ratio to the sensitivity of this client's own noise,
            as far as nobody else can take it off. It is all that hides the client among made-up
            ones.
        dimension: d, length of this client's update; None accepts any up to `largest_length`.
        largest_length: longest update or vector.
        largest_bits: largest field.
        mechanisms: names of those whose noise it adds; binomial only if left out.
        largest_coins: most coins of one client per coordinate.
        largest_variance: most variance of one client's noise per coordinate, in squared integer
            units; the table that it is drawn from grows with the square root.
        largest_linf_bound: largest integer coordinate; it decides what accounting costs.
        largest_rows: most rows of a sketch, over all copies; each is a pass over the update.
        minimum_security_bits: fewest security bits of a sparse graph; the complete one has no use
            for them. With a goal, what it sets aside for the ring must be enough as well.
        largest_lifetime_seconds: longest time from a round's announcement to its end; rounds that
            never expire are refused, too, and `RoundClient` needs a clock. None takes part in any
            round, and a client with a clock keeps to its expiry if it has one.
        allow_semi_honest: whether to take part without the consistency round.
        equal_rounds: hold every round against the goal as if all `goal.rounds` were like it. Where
            rounds take unequal shares of a goal, only `ClientHistory`, which adds them up, can
            tell; then the multiplier must be that of the largest share.

    Raises:
        ParameterError: a multiplier, a size of cohorts or the number of colluders is no bound.
    """

    minimum_noise_multiplier: float
    goal: PrivacyGoal | None = None
    minimum_survivors: int = 2
    largest_clip_l2: float = math.inf
    smallest_cohort: int = 2
    largest_cohort: int = MAX_COHORT
    registry_colluders: int = 0
    minimum_own_noise_multiplier: float = 0.0
    dimension: int | None = None
    largest_length: int = 1 << 28
    largest_bits: int = 62
    mechanisms: Collection[str] = (BinomialMechanism.name,)
    largest_coins: int = MAX_COINS
    largest_variance: float = MAX_VARIANCE
    largest_linf_bound: int = 1 << 16
    largest_rows: int = 256
    minimum_security_bits: int = SECURITY_BITS
    largest_lifetime_seconds: int | None = None
    allow_semi_honest: bool = False
    equal_rounds: bool = True

    def __post_init__(self) -> None:
        for name in ("minimum_noise_multiplier", "minimum_own_noise_multiplier"):
            if not getattr(self, name) >= 0.0:
                raise ParameterError(name, getattr(self, name), "at least 0")
        for name, low, high in (
            ("smallest_cohort", 2, MAX_COHORT),
            ("largest_cohort", self.smallest_cohort, MAX_COHORT),
            ("registry_colluders", 0, MAX_COHORT),
        ):
            value = getattr(self, name)
            if type(value) is not int or not low <= value <= high:
                raise ParameterError(name, value, f"an int in {low} .. {high}")
        # A plain str is a collection of its letters.
        names = () if isinstance(self.mechanisms, str) else tuple(self.mechanisms)
        if not names or any(name not in MECHANISMS for name in names):
            valid = f"at least one of {', '.join(MECHANISMS)}, in a tuple"
            raise ParameterError("mechanisms", self.mechanisms, valid)

    def check(self, setup: RoundSetup, *, keeps_time: bool = False) -> None:
        """Accept a setup or refuse it.

        Args:
            keeps_time: whether this client has a clock, and so an end to every round with a
                lifetime.

        Raises:
            PolicyError: names the parameter, what was announced and what would be accepted.
        """
        context, parameters = setup.context, setup.parameters
        if context.mode is Mode.SEMI_HONEST and not self.allow_semi_honest:
            raise PolicyError("mode", context.mode.value, "active only")
        dimension = parameters.sketch.dimension
        if self.dimension not in (None, dimension):
            raise PolicyError("dimension", dimension, f"{self.dimension} only")
        mechanism = parameters.mechanism
        if mechanism.name not in self.mechanisms:
            raise PolicyError("mechanism", mechanism.name, f"{' or '.join(self.mechanisms)} only")
        at_least = {
            "minimum_survivors": (context.minimum_survivors, self.minimum_survivors),
            "cohort_size": (context.size, self.smallest_cohort),
            "noise_multiplier": (noise_multiplier(setup), self.minimum_noise_multiplier),
        }
        for name, (announced, lowest) in at_least.items():
            if not announced >= lowest:
                raise PolicyError(name, announced, f"at least {lowest}")
        self._check_peers(setup)
        at_most = {
            "cohort_size": (context.size, self.largest_cohort),
            "clip_l2": (parameters.clip_l2, self.largest_clip_l2),
            "bits": (context.bits, self.largest_bits),
            "length": (max(context.length, dimension), self.largest_length),
            "coins": (getattr(mechanism, "coins", 0), self.largest_coins),
            "variance": (mechanism.variance, self.largest_variance),
            "linf_bound": (parameters.linf_bound, self.largest_linf_bound),
            "sketch_rows": (parameters.sketch.total_rows, self.largest_rows),
        }
        for name, (announced, highest) in at_most.items():
            if not announced <= highest:
                raise PolicyError(name, announced, f"at most {highest}")
        self._check_ring(context, keeps_time)
        if self.goal is not None and self.equal_rounds:
            epsilon = epsilon_of_rounds(setup, self.goal)
            if not epsilon <= self.goal.epsilon:
                rounds = f"{self.goal.rounds} such rounds"
                raise PolicyError(
                    "epsilon",
                    f"{epsilon:.6g} for {rounds}",
                    f"at most {self.goal.epsilon:.6g} for {rounds}",
                )

    def _check_peers(self, setup: RoundSetup) -> None:
        """What is left of this client's privacy if others of the cohort are the server's."""
        tolerated, bound = setup.context.tolerated_colluders, self.registry_colluders
        if tolerated < bound:
            raise PolicyError(
                "tolerated_colluders",
                tolerated,
                f"at least {bound}, because that many clients of the registry may work for the "
                f"server and all be in one cohort: plan for {bound}, with larger cohorts",
            )
        own, lowest = own_noise_multiplier(setup), self.minimum_own_noise_multiplier
        if not own >= lowest:
            raise PolicyError(
                "own_noise_multiplier",
                f"{own:.6g}",
                f"at least {lowest:.6g}: more noise of each client, or fewer dropouts whose noise "
                "can be removed",
            )

    def _check_ring(self, context: SessionContext, keeps_time: bool) -> None:
        """How long, and how well, the ring of the round stands up to a server that tries many."""
        lifetime, longest = context.lifetime_seconds, self.largest_lifetime_seconds
        if longest is not None and not 0 < lifetime <= longest:
            raise PolicyError("lifetime_seconds", lifetime, f"1 .. {longest}")
        if context.degree and context.security_bits < self.minimum_security_bits:
            valid = f"at least {self.minimum_security_bits}"
            raise PolicyError("security_bits", context.security_bits, valid)
        if self.goal is not None:
            check_ring(context, self.goal, keeps_time)


def check_ring(context: SessionContext, goal: PrivacyGoal, keeps_time: bool) -> None:
    """See that the ring fails with no more than a goal sets aside for it.

    Raises:
        PolicyError: it does.
    """
    if not is_safe(context, goal, keeps_time=keeps_time):
        raise PolicyError(
            "security_bits",
            f"{context.security_bits}, with which a ring fails with probability "
            f"{context.ring_failure(keeps_time=keeps_time):.3g}",
            f"at most {goal.reserve.aggregation:.3g} for each of {goal.rounds} rounds: more bits, "
            "or a lifetime and a clock to keep it by",
        )


def noise_multiplier(setup: RoundSetup) -> float:
    """Standard deviation of the noise of the fewest honest survivors over the sensitivity."""
    return _multiplier(setup, setup.parameters.mechanism, setup.fewest_honest)


def own_noise_multiplier(setup: RoundSetup) -> float:
    """The same of one client's own noise, as far as nobody else can take it off."""
    return _multiplier(setup, setup.own_noise, 1)


def _multiplier(setup: RoundSetup, mechanism: DistributedMechanism, contributors: int) -> float:
    return math.sqrt(contributors * mechanism.variance) / setup.parameters.l2_bound


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
    ) -> None:
        if policy.largest_lifetime_seconds is not None and clock is None:
            raise ParameterError("clock", None, "a clock: the policy wants rounds that expire")
        # A policy looks at one round at a time: without a count its goal would bound nothing.
        if policy.goal is not None and (history is None or history.goal != policy.goal):
            raise ParameterError(
                "history",
                None if history is None else f"one that counts against {history.goal}",
                f"one that counts against the policy's goal, {policy.goal}: a ClientHistory or "
                "StoredHistory made with it, the same for all rounds of this identity",
            )
        self._rand = rand
        self._clock = clock
        self._identity = identity
        self._registry = registry
        self._policy = policy
        self._history = ClientHistory() if history is None else history
        self._seen: float | None = None
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
        keeps_time = self._clock is not None
        self._policy.check(setup, keeps_time=keeps_time)
        if self._history.goal is not None:
            check_ring(setup.context, self._history.goal, keeps_time)
        self._check_time(setup.context)
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
        with _or_abort(session):  # also if the disk is full or the host is interrupted
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
        with _or_abort(session):
            now = self._latest_time(setup.context)
        if now is not None and not math.isnan(now):
            self._seen = now
        sealed = suspend_session(session, keys, covered(self._seen))
        return StoredRound(setup, self._seen, sealed).encode()

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
        if read.seen is not None and self._clock is None:
            raise StoredStateError(
                "the stored round was joined with a clock and expires by it, but this client has "
                "none: create the client with `clock` and resume the same round, which is not "
                "used up"
            )
        index = context.cohort.index(self._identity.public)
        session = resume_session(
            read.sealed, context, index, self._identity, keys, self._rand, covered(read.seen)
        )
        self._seen = read.seen
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
        with _or_abort(session):
            self._check_time(setup.context)

    def _check_time(self, context: SessionContext) -> None:
        """Make sure that the round is under way by this client's own clock."""
        now = self._latest_time(context)
        if now is None:
            return
        age = now - context.opened_at
        # Written so that NaN fails the test.
        if not -CLOCK_SKEW_SECONDS <= age <= context.lifetime_seconds:
            raise PolicyError(
                "opened_at",
                f"{context.opened_at}, {age:.0f} s ago by our clock",
                f"rounds until {context.lifetime_seconds} s after they were opened, by a clock "
                f"at most {CLOCK_SKEW_SECONDS} s ahead of ours",
            )
        self._seen = now

    def _latest_time(self, context: SessionContext) -> float | None:
        """The latest that our clock has shown; None without a clock or an end to keep."""
        if self._clock is None or context.lifetime_seconds == 0:
            return None
        now = float(self._clock())
        return self._seen if self._seen is not None and self._seen > now else now

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


@contextmanager
def _or_abort(session: ClientSession) -> Iterator[None]:
    """Whatever goes wrong inside, interrupts too, ends the session for good."""
    try:
        yield
    except BaseException:
        session.abort()
        raise
