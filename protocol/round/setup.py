"""Everything public about one round: what is encoded how, by whom, and who may learn what.

`RoundSetup` joins the parameters of the encoding and the context of secure aggregation, proves the
capacity of the field, and travels as one announcement.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar
from weakref import WeakValueDictionary

import msgspec
import numpy as np
from numpy.typing import NDArray

from dp import BinomialMechanism, CoinSchedule
from dp.mechanisms import DistributedMechanism
from protocol.checks import of_kind
from protocol.errors import PolicyError
from protocol.goal import PrivacyGoal
from protocol.round.field_size import bits_for
from protocol.round.losses import NOBODY, Dropouts, Stage, left_after, require_left, stages_of
from protocol.round.parameters import RoundParameters
from protocol.round.released import IndependentEvents, Released
from protocol.round.rings import is_safe, require_safe_ring
from protocol.round.round_events import RoundEvents
from protocol.round.written_parameters import WrittenParameters, same_in, taken
from secagg import (
    SERVER,
    CapacityError,
    Mode,
    ParameterError,
    Reason,
    RemoteProtocolError,
    SessionContext,
)
from secagg.keys import KEY_BYTES
from secagg.oneshot.records import MemberUploads, RoundRecord
from secagg.pairwise.traffic import client_traffic
from secagg.terms import RoundTerms
from secagg.traffic import Traffic, bytes_field

ANNOUNCEMENT_VERSION = 3

MAX_REMOVAL_DROPOUTS = 10_000
"""Dropouts that removable noise may tolerate: bounds the table a client computes for a server."""


_FEW = 16
"""Schedules that are remembered: whoever plays many clients would compute one for each of them."""


@lru_cache(_FEW, typed=True)
def coin_schedule(
    mechanism: DistributedMechanism, cohort: int, minimum_survivors: int, colluders: int
) -> CoinSchedule | None:
    """The batches in which a client's coins are drawn so that surplus ones can be taken off.

    With the fewest survivors every one of the client's coins stays; the target is what the fewest
    honest survivors then hold together. None if there is nothing to take off; noise that is no
    coins comes as a whole.
    """
    lost = cohort - minimum_survivors
    if not isinstance(mechanism, BinomialMechanism) or mechanism.coins == 0 or lost == 0:
        return None
    coins = mechanism.coins
    target = coins * (minimum_survivors - colluders)
    try:
        schedule = CoinSchedule.best(target, cohort, lost, colluders)
    except ValueError as error:
        raise ParameterError("coins", coins, str(error)) from None
    return schedule if len(schedule.batches) > 1 else None


@lru_cache(_FEW)
def removal_table(schedule: CoinSchedule | None) -> tuple[int, ...]:
    """Which removable seeds survivors give up, as `SessionContext.removal` wants it."""
    if schedule is None:
        return ()
    # Batch 0 always stays and has no shared seed, so batch i is seed i - 1.
    return tuple(
        sum(1 << (batch - 1) for batch in schedule.removed(lost))
        for lost in range(schedule.tolerated_dropouts + 1)
    )


def announced_removal(
    mechanism: DistributedMechanism, size: int, survivors: int, colluders: int, *, removable: bool
) -> tuple[int, ...]:
    """The removal table that announced numbers stand for; ValueError if they are no numbers."""
    if not removable:
        return ()
    # The cost of a schedule grows with the dropouts that it tolerates.
    if not (0 <= colluders < survivors <= size and size - survivors <= MAX_REMOVAL_DROPOUTS):
        raise ValueError("too many dropouts, or too few survivors, for removable noise")
    return removal_table(coin_schedule(mechanism, size, survivors, colluders))


def own_noise(
    mechanism: DistributedMechanism, schedule: CoinSchedule | None
) -> DistributedMechanism:
    """Noise of one client that hides it even if all its peers are the server's.

    Peers hold the shares of every seed that may have to go, whether it goes or not: all of them
    together open these batches. Batch 0 alone has a seed that was never shared.

    Args:
        schedule: the batches that its coins come in; None if none can be taken off.
    """
    return mechanism if schedule is None else BinomialMechanism(schedule.batches[0])


def noise_left(
    mechanism: DistributedMechanism, schedule: CoinSchedule | None, lost: int
) -> DistributedMechanism:
    """Noise of one survivor that stays in the sum."""
    return mechanism if schedule is None else BinomialMechanism(schedule.kept_coins(lost))


def noise_entry(mechanism: DistributedMechanism, whose: str) -> dict[str, int | float]:
    """A client's noise as it is written down: `coins_each` or `variance_own`, for instance."""
    return {f"{mechanism.unit}_{whose}": mechanism.amount}


@dataclass(frozen=True, slots=True, weakref_slot=True)
class RoundEncoding(ABC):
    """What a round's sum carries, whatever scheme adds it up: see its kinds.

    All that ledger, history, policy and ideal functionality ask of a round, they ask here.
    """

    KIND: ClassVar[str]
    """The name of the scheme."""

    context: RoundTerms
    parameters: RoundParameters
    schedule: CoinSchedule | None = field(init=False, compare=False)

    def __post_init__(self) -> None:
        context, parameters = self.context, self.parameters
        self._check_survivors()
        schedule = None
        if context.removal:
            survivors, colluders = context.minimum_survivors, context.tolerated_colluders
            schedule = coin_schedule(parameters.mechanism, context.invited, survivors, colluders)
        object.__setattr__(self, "schedule", schedule)
        if context.removal != removal_table(schedule):
            raise ParameterError("removal", context.removal, "empty, or that of the coin schedule")
        if context.application_digest != parameters.digest():
            raise ParameterError("application_digest", "another digest", "that of the parameters")
        if context.length != parameters.length:
            raise ParameterError("length", context.length, f"the sketch size {parameters.length}")
        if (parameters.returned is None) != (self.adding_members == 0):
            valid = "given where members upload as well, and left out anywhere else"
            raise ParameterError("returned", parameters.returned, valid)
        needed = bits_for(parameters, context.invited, context.seeds, self.adding_members)
        if context.bits < needed:
            raise CapacityError(needed, context.bits)

    def noise_left(self, survivors: int) -> DistributedMechanism:
        """Noise of each of so many survivors that stays in the sum."""
        lost = self.context.invited - survivors
        return noise_left(self.parameters.mechanism, self.schedule, lost)

    @property
    def adding_members(self) -> int:
        """Members of a committee who add noise as well, and take a part of it back."""
        return 0

    def accepts(self, vector: NDArray[np.int64]) -> bool:
        """Whether a client that sends such integers, int64[length], stays in the sum: all do."""
        del vector
        return True

    @property
    def error_variance(self) -> float:
        """Variance of what a client's coordinate has besides signal, rounding and noise."""
        return 0.0

    @property
    def own_noise(self) -> DistributedMechanism:
        """Noise of one client that no peer can open: see `own_noise`."""
        return own_noise(self.parameters.mechanism, self.schedule)

    def _check_survivors(self) -> None:
        """The noise must be enough for the smallest sum that may be released."""
        context, dropouts = self.context, self.parameters.tolerated_dropouts
        if dropouts + context.tolerated_colluders >= context.invited or self.fewest_honest < 1:
            raise ParameterError(
                "tolerated_dropouts, minimum_survivors",
                (dropouts, context.minimum_survivors),
                f"such that somebody is left besides {context.tolerated_colluders} colluders",
            )
        if context.minimum_survivors < context.invited - dropouts:
            raise ParameterError(
                "minimum_survivors",
                context.minimum_survivors,
                f"at least {context.invited - dropouts}: the noise is made for {dropouts} dropouts",
            )

    @property
    def fewest_honest(self) -> int:
        """Honest clients that are surely among the survivors of any sum that is released."""
        return self.context.minimum_survivors - self.context.tolerated_colluders

    @property
    def released(self) -> Released:
        """What the sum may release, and which account counts it."""
        return IndependentEvents(self)

    def possible_events(self) -> Sequence[RoundEvents]:
        """What the sum may release, before it is known who survives: the worst that there is."""
        return self.released.possible()

    def events(self, survivors: int, record: RoundRecord | None = None) -> RoundEvents:
        """What a sum over `survivors` clients releases."""
        return self.released.of(survivors, record)

    @property
    @abstractmethod
    def stages(self) -> tuple[Stage, ...]:
        """The stages whose losses the round can feel, in order."""

    @abstractmethod
    def require_left(self, stage: Stage, dropouts: Dropouts, refused: Dropouts = NOBODY) -> None:
        """Fail at a stage where the protocol would, for want of parties."""

    @property
    def member_uploads(self) -> MemberUploads | None:
        """The terms of uploads of a committee's members; None if clients alone upload."""
        return None

    def ring_failure(self, *, keeps_time: bool = True) -> float:
        """Probability that the protocol fails by chance, of which delta has a part."""
        del keeps_time
        return 0.0

    def check_failure(self, goal: PrivacyGoal, *, keeps_time: bool = True) -> None:
        """See that the protocol fails with no more than a goal sets aside for one round."""
        del goal, keeps_time

    def require_safe(self, goal: PrivacyGoal) -> None:
        """The same, for whoever announces the round."""
        del goal

    @property
    @abstractmethod
    def context_hash(self) -> bytes:
        """The hash that everything in the round is bound to, 32 bytes."""

    @property
    @abstractmethod
    def identities(self) -> tuple[bytes, ...]:
        """The cohort's identity keys, in the order of their indices, where they are known."""

    @property
    def members(self) -> tuple[bytes, ...]:
        """Identity keys of the committee, in its order; none if there is no committee."""
        return ()

    @property
    @abstractmethod
    def vector_bytes(self) -> int:
        """Bytes of one client's masked vector."""

    @abstractmethod
    def traffic(self, survivors: int) -> Traffic:
        """What a client that finishes the round sends and is sent, with its announcement.

        Exact if clients are lost at their upload or never. Of a client that is a member of the
        committee only if everybody is one.
        """


@dataclass(frozen=True, slots=True)
class RoundSetup(RoundEncoding):
    """A pairwise round as announced: the secure-aggregation context and what it carries."""

    KIND: ClassVar[str] = "pairwise"

    context: SessionContext

    @property
    def stages(self) -> tuple[Stage, ...]:
        """All that the mode has."""
        return stages_of(self.context.mode)

    def require_left(self, stage: Stage, dropouts: Dropouts, refused: Dropouts = NOBODY) -> None:
        """See `RoundEncoding.require_left`.

        On a sparse graph the real protocol may also fail because too many of one neighbourhood, or
        of the committee, went away; parameters make that unlikely, and here it never happens.
        """
        context, lost = self.context, {**dropouts, **refused}
        if stage is Stage.RECOVER:
            survivors = left_after(context.size, lost, Stage.INPUT)
            answered = left_after(context.size, lost, Stage.UNMASK)
            # Asked for only if somebody went away without giving up seeds of surplus noise.
            if survivors == answered or not context.removed_seeds(len(survivors)):
                return
        needed = context.minimum_survivors if stage <= Stage.INPUT else context.threshold
        if stage is Stage.CONFIRM:
            members = len(left_after(context.size, lost, Stage.ADVERTISE))
            committee = context.committee(members)
            needed = committee.quorum if committee.size == members else needed
        require_left(stage, len(left_after(context.size, lost, stage)), needed)

    @property
    def context_hash(self) -> bytes:
        """That of the context."""
        return self.context.hash

    @property
    def identities(self) -> tuple[bytes, ...]:
        """The cohort, which everybody knows."""
        return self.context.cohort

    @property
    def vector_bytes(self) -> int:
        """Bytes of one client's masked vector: `bits` for each element."""
        return self.context.field.packed_bytes(self.context.length)

    def traffic(self, survivors: int) -> Traffic:
        """As `RoundEncoding.traffic` says: every message, as if nobody were lost before the sum."""
        context = self.context
        found = client_traffic(
            context.size,
            context.degree or context.size - 1,
            context.committee(context.size).quorum,
            context.mode,
            self.vector_bytes,
            context.seeds,
            len(context.removed_seeds(survivors)),
        )
        return found.announced(len(self.announce()))

    def ring_failure(self, *, keeps_time: bool = True) -> float:
        """That of the context's ring; 0 on the complete graph."""
        return self.context.ring_failure(keeps_time=keeps_time)

    def check_failure(self, goal: PrivacyGoal, *, keeps_time: bool = True) -> None:
        """As `RoundEncoding.check_failure` says."""
        context = self.context
        if not is_safe(context, goal, keeps_time=keeps_time):
            raise PolicyError(
                "security_bits",
                f"{context.security_bits}, with which a ring fails with probability "
                f"{context.ring_failure(keeps_time=keeps_time):.3g}",
                f"at most {goal.reserve.aggregation:.3g} for each of {goal.rounds} rounds: more "
                "bits, or a lifetime and a clock to keep it by",
            )

    def require_safe(self, goal: PrivacyGoal) -> None:
        """As `RoundEncoding.require_safe` says."""
        require_safe_ring(self.context, goal)

    def announce(self) -> bytes:
        """The setup as bytes for every client of the cohort."""
        context, parameters = self.context, self.parameters
        return bytes([ANNOUNCEMENT_VERSION]) + msgspec.msgpack.encode(
            Announcement(
                cohort=b"".join(context.cohort),
                mode=context.mode.value,
                removable=bool(context.removal),
                **taken(context, _AS_IN_CONTEXT),
                **msgspec.structs.asdict(WrittenParameters.of(parameters)),
            )
        )

    @classmethod
    def from_announcement(cls, data: bytes, model_digest: bytes) -> RoundSetup:
        """Read an announcement, with the digest of the model that *this* client received.

        Raises:
            RemoteProtocolError: malformed bytes, or parameters that are no setup.

        Post: nothing was allocated that is larger than the announcement.
        """
        if not data or data[0] != ANNOUNCEMENT_VERSION or len(data) > MAX_ANNOUNCEMENT_BYTES:
            raise RemoteProtocolError(SERVER, Reason.MALFORMED, "announcement version or size")
        key = (bytes(data), model_digest)
        setup = _SETUPS.get(key)
        if setup is not None:
            return setup
        try:
            announced = msgspec.msgpack.decode(memoryview(data)[1:], type=Announcement)
            setup = announced.setup(model_digest)
        except (msgspec.MsgspecError, RecursionError, ValueError, TypeError) as error:
            raise RemoteProtocolError(SERVER, Reason.MALFORMED, str(error)) from None
        _SETUPS[key] = setup
        return setup


def pairwise(setup: RoundEncoding) -> RoundSetup:
    """A setup of the pairwise protocol, for whoever runs no other."""
    return of_kind("setup", setup, RoundSetup)


_SETUPS: WeakValueDictionary[tuple[bytes, bytes], RoundSetup] = WeakValueDictionary()
"""Announcements that some client of this process is working on. A setup never changes, so they
share it: ten thousand clients that each keep ten thousand keys would fill the memory. One that
everybody refused is gone at once."""


MAX_ANNOUNCEMENT_BYTES = 1 << 26
"""A cohort of a million 32-byte identities and some."""


class Announcement(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The wire form of a setup. The model digest is not in it: each client hashes its own model.

    `noise` is the coins of a client, as it was before there was other noise, or the name of a
    mechanism and its amount, which clients of that time refuse as malformed; `scale` is None where
    clients have integers, which was refused likewise.
    """

    session_id: bytes
    round_number: int
    cohort: bytes
    threshold: int
    minimum_survivors: int
    mode: str
    tolerated_colluders: int
    degree: int
    bits: int
    clip_l2: float
    sketch: bytes
    sketch_clip_l2: float
    public_seed: bytes
    scale: float | None
    linf_bound: int
    noise: int | tuple[str, float]
    tolerated_dropouts: int
    wrap_probability: float
    removable: bool
    security_bits: int
    opened_at: int
    lifetime_seconds: int

    def setup(self, model_digest: bytes) -> RoundSetup:
        """The setup that a client with this model takes part in; ValueError if there is none."""
        written = (getattr(self, name) for name in WrittenParameters.__struct_fields__)
        parameters = WrittenParameters(*written).read(model_digest)
        if len(self.cohort) % KEY_BYTES:
            raise ValueError("the cohort is not a list of 32-byte identities")
        context = SessionContext(
            cohort=tuple(
                self.cohort[i : i + KEY_BYTES] for i in range(0, len(self.cohort), KEY_BYTES)
            ),
            mode=Mode(self.mode),
            removal=announced_removal(
                parameters.mechanism,
                len(self.cohort) // KEY_BYTES,
                self.minimum_survivors,
                self.tolerated_colluders,
                removable=self.removable,
            ),
            length=parameters.length,
            application_digest=parameters.digest(),
            **taken(self, _AS_IN_CONTEXT),
        )
        return RoundSetup(context, parameters)


_FIXED_BYTES = 168
"""What is in an announcement besides the cohort, give or take the length of some integers."""


def announcement_bytes(clients: int) -> int:
    """Bytes of an announcement to so many clients, before there is one."""
    return _FIXED_BYTES + bytes_field(clients * KEY_BYTES)


_AS_IN_CONTEXT = tuple(
    name for name in same_in(Announcement, SessionContext) if name not in ("cohort", "mode")
)
"""Written as they are."""
