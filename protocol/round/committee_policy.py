"""What a client of one-shot rounds insists on about the committee that opens their sums.

It delegates to the committee what the pairwise protocol lets it check itself: that one set of
uploads is opened, large enough, and of the right identities. Beyond T colluding members its own
update alone is readable, and it cannot notice. So whom it trusts with that is its own choice, made
before any round.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

from protocol.checks import RANGES, of_kind, require
from protocol.errors import PolicyError
from protocol.goal import PrivacyGoal
from protocol.round.draw_policy import DrawPolicy
from protocol.round.one_shot_setup import OneShotSetup
from protocol.round.setup import RoundEncoding
from protocol.round.validated_setup import ValidatedSetup
from secagg import ParameterError
from secagg.checks import require_int, whole
from secagg.keys import KEY_BYTES
from secagg.oneshot.committee import MAX_MEMBERS, CommitteeKind
from secagg.oneshot.context import CommitteeContext
from secagg.oneshot.sortition import Places

KEY_ROUNDS = 1 << 16
"""Rounds that a sealing key serves unless told otherwise. Its owner erases it afterwards: whoever
gets hold of it opens what was recorded."""

KEYS = whole(1, KEY_ROUNDS)
"""Every number of rounds that an owner lets its key serve."""

KEY_SECONDS = 7 * 86_400
"""Longest time that its owner keeps a sealing key, by its own clock: a server that stops in the
middle of a range must not keep it alive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitteePolicy:
    """Committees that a client accepts.

    Args:
        kind: everyone who is invited, members that are named, or members that are drawn.
        named: for a named committee, the identity keys that may be on it; every member must be one.
            For a drawn one, those of the registry that still may; all of them if left out.
        corrupt: most of the members that may work for the server, at any time until their keys are
            erased. A committee that tolerates fewer is refused; if everyone is on it, so is a round
            that tolerates fewer colluders, for these members are clients. Left out for a drawn
            committee: it follows from the draw.
        smallest_threshold: fewest members, T + l, that together read one upload.
        largest_key_rounds: most rounds that one sealing key may serve; members are counted on to
            stay honest for as long.
        largest: most members; a client seals a share for each.
        draw: of a drawn committee.

    Raises:
        ParameterError: named members without a named committee, a draw without a drawn one, or the
            other way round.
    """

    KIND: ClassVar[str] = "one-shot"

    kind: CommitteeKind
    named: Collection[bytes] = ()
    corrupt: int | None = None
    smallest_threshold: int = 2
    largest_key_rounds: int = KEY_ROUNDS
    largest: int = MAX_MEMBERS
    draw: DrawPolicy | None = None

    def __post_init__(self) -> None:
        named = self.kind is CommitteeKind.NAMED
        if named != bool(self.named) and self.kind is not CommitteeKind.DRAWN:
            valid = "identity keys for a named committee, and none if everyone is on it"
            raise ParameterError("named", f"{len(self.named)} identities", valid)
        if any(type(key) is not bytes or len(key) != KEY_BYTES for key in self.named):
            raise ParameterError("named", "a key of another kind", "32-byte Ed25519 keys")
        if (self.kind is CommitteeKind.DRAWN) != isinstance(self.draw, DrawPolicy):
            valid = "a DrawPolicy for a drawn committee, and None for any other"
            raise ParameterError("draw", type(self.draw).__name__, valid)
        if self.draw is not None and self.corrupt is not None:
            raise ParameterError("corrupt", self.corrupt, "left out: it follows from the draw")
        require_int("corrupt", self.most_corrupt, 0, MAX_MEMBERS)
        require(self, "smallest_threshold")
        require_int("largest_key_rounds", self.largest_key_rounds, 1, 1 << 63)
        RANGES["size"].require("largest", self.largest)

    @property
    def most_corrupt(self) -> int:
        """c: most of the members that may work for the server."""
        return self.draw.corrupt if self.draw else self.corrupt  # type: ignore[return-value]

    def require_goal(self, goal: PrivacyGoal) -> None:
        """See that draws fail with no more than what all rounds of a goal set aside together."""
        draw = self.draw
        if draw is None:
            return
        aside = goal.reserve.releases * goal.reserve.aggregation
        if not draw.failure <= aside:
            valid = (
                f"more: with so many, draws fail with probability {draw.failure:.3g}, and a delta "
                f"of {goal.delta:g} sets {aside:.3g} aside"
            )
            raise ParameterError("security_bits", draw.bits, valid)

    def check(self, setup: RoundEncoding) -> None:
        """Accept the committee of a round or refuse it; see `check_committee`."""
        one_shot = of_kind("setup", setup, OneShotSetup)
        self.check_committee(one_shot.context, one_shot.places)

    def check_committee(self, context: CommitteeContext, places: Places | None = None) -> None:
        """Accept the committee of a round or refuse it.

        Args:
            context: of the round.
            places: of the members in a registry, if they were drawn.

        Raises:
            PolicyError: names the parameter, what was announced and what would be accepted.
        """
        committee = context.committee
        if committee.kind is not self.kind:
            raise PolicyError("committee", committee.kind.value, f"{self.kind.value} only")
        if committee.size > self.largest:
            raise PolicyError("committee", f"{committee.size} members", f"at most {self.largest}")
        tolerated = committee.corrupt
        if committee.of_cohort:
            tolerated = min(tolerated, context.tolerated_colluders)
        if tolerated < self.most_corrupt:
            raise PolicyError("corrupt", tolerated, f"at least {self.most_corrupt}")
        if committee.threshold < self.smallest_threshold:
            valid = f"at least {self.smallest_threshold} members that together read an upload"
            raise PolicyError("threshold", committee.threshold, valid)
        rounds = max(member.last_round - member.first_round + 1 for member in committee.members)
        if rounds > self.largest_key_rounds:
            valid = f"at most {self.largest_key_rounds} rounds"
            raise PolicyError("sealing_key", f"one for {rounds} rounds", valid)
        strangers = [each for each in committee.members if each.identity not in self.named]
        if self.named and strangers:
            valid = "the named ones only" if self.draw is None else "no member that was revoked"
            raise PolicyError("committee", f"{len(strangers)} members that are strangers", valid)
        if self.draw is not None:
            self.draw.check(context, places)
        if context.is_weak:
            raise PolicyError("ring", "a weak one", "a ring that the security table allows")


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidatedPolicy(CommitteePolicy):
    """Committees that a client of validated rounds accepts; a bound below its own it never does."""

    KIND: ClassVar[str] = "validated"

    def check(self, setup: RoundEncoding) -> None:
        """As `CommitteePolicy.check` says, and the bound."""
        CommitteePolicy.check(self, setup)
        validated = of_kind("setup", setup, ValidatedSetup)
        least, bound = validated.least_bound, validated.context.bound
        if bound < least:
            valid = f"at least {least}: with less, silence tells how long a vector is"
            raise PolicyError("bound", bound, valid)
