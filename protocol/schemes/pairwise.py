"""Pairwise masks with dropout recovery: every client answers in every stage.

Source: docs/security.md; the cryptography is in `secagg.pairwise`.
"""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from protocol.checks import of_kind, require
from protocol.exchange.aggregators import Aggregator, RealAggregator
from protocol.exchange.remote import RemoteAggregator
from protocol.promise import Promise
from protocol.round.clauses import PairwiseClauses
from protocol.round.field_size import bits_for
from protocol.round.losses import Stage
from protocol.round.parameters import RoundParameters
from protocol.round.rings import fitting_security_bits, unsafe
from protocol.round.setup import RoundEncoding, RoundSetup, pairwise, removal_table
from protocol.schemes.graph import COMPLETE_UP_TO, GraphPlan, default_graph, price_graph
from protocol.schemes.scheme import Announced, Carrier, Local, Scheme, Trusted
from secagg import Mode, ParameterError, SessionContext, lowest_threshold
from secagg.checks import require_int
from secagg.grinding import ring_failure
from secagg.pairwise.context import fewest_survivors
from secagg.pairwise.graph_parameters import SECURITY_BITS

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairwise(Scheme):
    """Every client answers in every stage.

    Args:
        mode: what the server is trusted with.
        degree: k of a sparse graph, 0 for the complete one; left out together with the threshold,
            both are chosen for the cohort: the complete graph for up to 200 clients.
        threshold: t; the smallest safe one if left out.
        security_bits: of a sparse graph and its committee; if left out, the fewest from 80 on, in
            steps of 8, with which a ring fails no more often than the goal sets aside. The
            complete graph has no use for them.

    Raises:
        ParameterError: a figure is of the wrong kind or out of range.
    """

    KIND: ClassVar[str] = "pairwise"
    SHORT_STAGES: ClassVar[int] = len(Stage) - 1

    mode: Mode = Mode.ACTIVE
    degree: int | None = None
    threshold: int | None = None
    security_bits: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.mode, Mode):
            valid = " or ".join(f"Mode.{each.name}" for each in Mode)
            raise ParameterError("mode", self.mode, valid)
        for name in ("degree", "threshold"):
            if getattr(self, name) is not None:
                require_int(name, getattr(self, name), 0)
        if self.security_bits is not None:
            require(self, "security_bits")

    def ring_bits(self, plan: Promise) -> int:
        """Security bits of the rounds of a plan: as given, or what its goal needs.

        Raises:
            ParameterError: the goal needs more than there are.
        """
        if self.security_bits is not None:
            return self.security_bits
        by_size = self.degree is None and self.threshold is None
        if not (plan.cohort > COMPLETE_UP_TO if by_size else self.degree):
            return SECURITY_BITS
        return fitting_security_bits(plan.goal, plan.cohort, self.mode, plan.lifetime_seconds)

    def graph(self, plan: Promise) -> tuple[int, int]:
        """(k, t): as given, or what the cohort of a plan needs."""
        clients, colluders = plan.cohort, plan.tolerated_colluders
        bits, degree = self.ring_bits(plan), self.degree
        if degree is None and self.threshold is None:
            return default_graph(clients, colluders, plan.tolerated_dropouts, self.mode, bits)
        degree = degree or 0
        if self.threshold is not None:
            return degree, self.threshold
        return degree, lowest_threshold(clients, colluders, self.mode, degree, security_bits=bits)

    def check(self, plan: Promise) -> None:
        """As `Scheme.check` says.

        Failures of the ring are a part of delta, and there is a share of delta for them.
        """
        degree, threshold = self.graph(plan)
        bits, active = self.ring_bits(plan), self.mode is Mode.ACTIVE
        failure = ring_failure(plan.cohort, bits, plan.lifetime_seconds, active=active)
        if degree and not failure <= plan.goal.reserve.aggregation:
            raise unsafe(bits, failure, plan.goal)
        fewest = fewest_survivors(threshold, plan.tolerated_colluders, degree)
        if self.threshold is not None and self.threshold > plan.cohort:
            raise ParameterError("threshold", threshold, f"at most the cohort, {plan.cohort}")
        if plan.cohort < fewest:
            needed = fewest + plan.tolerated_dropouts
            valid = f"at least {needed}, with {plan.tolerated_colluders} colluders"
            raise ParameterError("cohort", plan.cohort, valid)
        if plan.minimum_survivors < fewest:
            raise ParameterError(
                "tolerated_dropouts",
                plan.tolerated_dropouts,
                f"at most {plan.cohort - fewest}: with {plan.cohort} clients and "
                f"{plan.tolerated_colluders} colluders, {fewest} must survive",
            )

    def price(
        self, plan: Promise, parameters: RoundParameters, bits: int, seeds: int, adding: int
    ) -> GraphPlan:
        """As `Scheme.price` says: the graph, and the bytes of every message of a client."""
        degree, threshold = self.graph(plan)
        return price_graph(
            plan.cohort,
            plan.tolerated_colluders,
            plan.tolerated_dropouts,
            self.mode,
            degree,
            threshold,
            length=parameters.length,
            bits=bits,
            seeds=seeds,
            security_bits=self.ring_bits(plan),
        )

    def setup(self, plan: Promise, parameters: RoundParameters, announced: Announced) -> RoundSetup:
        """As `Scheme.setup` says."""
        removal = removal_table(plan.schedule(parameters.mechanism))
        bits = bits_for(parameters, plan.cohort, max(removal, default=0).bit_length())
        degree, threshold = self.graph(plan)
        context = SessionContext(
            session_id=announced.session_id,
            round_number=announced.round_number,
            cohort=tuple(announced.cohort),
            threshold=threshold,
            degree=degree,
            minimum_survivors=plan.minimum_survivors,
            mode=self.mode,
            tolerated_colluders=plan.tolerated_colluders,
            removal=removal,
            bits=max(bits, announced.bits),
            length=parameters.length,
            application_digest=parameters.digest(),
            security_bits=self.ring_bits(plan),
            opened_at=announced.opened_at,
            lifetime_seconds=plan.lifetime_seconds,
        )
        return RoundSetup(context, parameters)

    def clauses(self, plan: Promise, trusted: Trusted) -> PairwiseClauses:
        """As `Scheme.clauses` says."""
        return PairwiseClauses(
            allow_semi_honest=self.mode is Mode.SEMI_HONEST,
            minimum_security_bits=self.ring_bits(plan),
        )

    def table(self) -> dict[str, Any]:
        """As `Scheme.table` says; degree and threshold are no keys, and follow from the cohort."""
        table = {"kind": self.KIND, "mode": self.mode.value, "security_bits": self.security_bits}
        return {name: value for name, value in table.items() if value is not None}

    def rules(self, plan: Promise) -> dict[str, dict[str, Any]]:
        """As `Scheme.rules` says."""
        semi_honest = self.mode is Mode.SEMI_HONEST
        bits = self.ring_bits(plan)
        return {"pairwise": {"security_bits": bits, "allow_semi_honest": semi_honest}}

    def local(self, plan: Promise, play: Local) -> Aggregator:
        """As `Scheme.local` says.

        Raises:
            ParameterError: several ranks: the server is one process.
        """
        if play.ranks.size > 1:
            raise ParameterError("ranks", play.ranks.size, "1, or a plan of one-shot rounds")
        policy = play.policy_of(Trusted())
        return RealAggregator(
            play.identities, policy, play.executor, noise=play.noise, rand_of=play.rand_of
        )

    def remote(self, carrier: Carrier, executor: Executor | None = None) -> Aggregator:
        """As `Scheme.remote` says."""
        return RemoteAggregator(carrier.exchange, executor, carrier.note)

    @classmethod
    def stage_bytes(cls, setup: RoundEncoding) -> int:
        """As `Scheme.stage_bytes` says."""
        invited = pairwise(setup).context.invited
        parts = setup.traffic(invited).each
        # The vector goes with training; the announcement is sent once.
        return invited * max(
            size for name, size in parts.items() if name not in ("vector", "announcement")
        )


def pairwise_of(plan: Promise) -> Pairwise:
    """The scheme of a plan of pairwise rounds; `ParameterError` of any other."""
    return of_kind("scheme", plan.scheme, Pairwise)


def pairwise_setup(
    plan: Promise,
    parameters: RoundParameters,
    cohort: Sequence[bytes],
    session_id: bytes,
    round_number: int,
    opened_at: int = 0,
) -> RoundSetup:
    """A round of a plan of pairwise rounds; arguments as of `Announced`."""
    announced = Announced(
        cohort=cohort, session_id=session_id, round_number=round_number, opened_at=opened_at
    )
    return pairwise_of(plan).setup(plan, parameters, announced)
