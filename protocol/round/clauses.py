"""What a client insists on about one scheme, and about noise that comes back.

A policy holds the clauses of every scheme that the client takes part in; a round of any other
scheme is refused. Those of one-shot rounds are in `committee_policy`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

from dp.correlated.event import LARGEST_ROUNDS
from protocol.errors import PolicyError
from protocol.goal import PrivacyGoal
from protocol.round.released import multiplier
from protocol.round.setup import RoundEncoding, pairwise
from secagg import Mode, ParameterError
from secagg.checks import require_int
from secagg.pairwise.graph_parameters import SECURITY_BITS


class Clauses(Protocol):
    """What a client insists on about the rounds of one scheme."""

    KIND: ClassVar[str]
    """The scheme's name."""

    def check(self, setup: RoundEncoding) -> None:
        """Accept a setup of the scheme, or raise `PolicyError`."""

    def require_goal(self, goal: PrivacyGoal) -> None:
        """See that the clauses can hold a goal; `ParameterError` if not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairwiseClauses:
    """Of pairwise rounds.

    Args:
        allow_semi_honest: whether to take part without the consistency round.
        minimum_security_bits: fewest security bits of a sparse graph; the complete one has no use
            for them. With a goal, what it sets aside for the ring must be enough as well.
    """

    KIND: ClassVar[str] = "pairwise"

    allow_semi_honest: bool = False
    minimum_security_bits: int = SECURITY_BITS

    def check(self, setup: RoundEncoding) -> None:
        """As `Clauses.check` says."""
        context = pairwise(setup).context
        if context.mode is Mode.SEMI_HONEST and not self.allow_semi_honest:
            raise PolicyError("mode", context.mode.value, "active only")
        if context.degree and context.security_bits < self.minimum_security_bits:
            valid = f"at least {self.minimum_security_bits}"
            raise PolicyError("security_bits", context.security_bits, valid)

    def require_goal(self, goal: PrivacyGoal) -> None:
        """As `Clauses.require_goal` says; any goal will do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnedClauses:
    """Of runs in which members of the committee add a part of the noise, and take it back.

    If they all work for the server, only what the clients add themselves is left.

    Args:
        apart: minimum number of rounds between participations of this client.
        minimum_kept_multiplier: smallest ratio to the sensitivity of the noise of the fewest honest
            clients.
    """

    apart: int = 1
    minimum_kept_multiplier: float = 0.0

    def __post_init__(self) -> None:
        require_int("apart", self.apart, 1, LARGEST_ROUNDS)
        if not self.minimum_kept_multiplier >= 0.0:
            value = self.minimum_kept_multiplier
            raise ParameterError("minimum_kept_multiplier", value, "at least 0")

    def check(self, setup: RoundEncoding, largest_variance: float) -> None:
        """Accept what comes back in a setup, or raise `PolicyError`.

        Args:
            largest_variance: of one member's noise per coordinate, in squared integer units.
        """
        parameters = setup.parameters
        returned = parameters.returned
        if returned is not None and not returned.variance <= largest_variance:
            raise PolicyError("variance", returned.variance, f"at most {largest_variance}")
        kept = multiplier(parameters, parameters.mechanism.variance, setup.fewest_honest)
        if not kept >= self.minimum_kept_multiplier:
            raise PolicyError(
                "kept_multiplier",
                f"{kept:.6g}",
                f"at least {self.minimum_kept_multiplier:.6g}: more noise that stays",
            )
