"""What a deployment needs, in figures: the graph alone, or everything for a privacy goal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

from dp import BudgetExceededError, UnsupportedEventError
from dp.ledger_reader import read_ledger
from dp.mechanisms import MechanismName
from dp.report import json_number
from protocol.checks import of_kind
from protocol.errors import ConfigurationError
from protocol.goal import PrivacyGoal, check_goal
from protocol.noise.noise import Independent
from protocol.planning.deployment import DeploymentPlan, noise_figures, plan_deployment
from protocol.planning.training_plan import TrainingPlan
from protocol.round.rings import fitting_security_bits
from protocol.schemes import OneShot, Pairwise, Scheme, Validated
from protocol.schemes.committee import (
    CommitteeNumbers,
    RingChoice,
    choose_ring,
    require_one_shot,
)
from protocol.schemes.graph import GraphPlan, plan_graph
from protocol.schemes.one_shot import one_shot_of
from protocol.schemes.scheme import Priced, figures_of
from protocol.schemes.validated import BoundChoice
from secagg import Mode, ParameterError, PrimeField
from secagg.oneshot.committee import CommitteeKind
from secagg.pairwise.graph_parameters import SECURITY_BITS, share_of
from simulations.common.committees import committee_plan
from simulations.learning.insecure import seed_in_notes
from simulations.reports.account.ledger import account_ledger, is_local
from sketch import SketchSpec, spec_for_size

GRAPHS = {"auto": None, "sparse": True, "complete": False}


@dataclass(frozen=True, slots=True)
class Wish:
    """The options, as given."""

    clients: int
    corrupt: float
    dropout: float
    mode: Mode
    graph: str | None
    dim: int
    bits: int | None
    delta: float
    rounds: int
    clip: float
    compression: float
    mechanism: str
    exact_noise: bool | None
    error_share: float
    wrap_probability: float
    security_bits: int | None
    lifetime: int
    scheme: str = Pairwise.KIND
    committee: tuple[int, int, int] | None = None

    def __post_init__(self) -> None:
        for name in ("corrupt", "dropout"):
            # Written so that NaN fails the test.
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ConfigurationError(
                    name, f"value {getattr(self, name)}", "a share, at least 0 and below 1"
                )

    def sparse(self, default: str) -> bool | None:
        """The kind of graph: True, False, or None for the cohort's own."""
        kind = default if self.graph is None else self.graph
        if kind not in GRAPHS:
            raise ConfigurationError("graph", f"value {kind!r}", ", ".join(GRAPHS))
        return GRAPHS[kind]


def round_figures(wish: Wish) -> dict[str, Any]:
    """Who masks with whom or who opens the sum, and the bytes of every client."""
    return _FIGURES[wish.scheme](wish)


def one_shot_figures(wish: Wish) -> dict[str, Any]:
    """The committee, the ring, and the bytes of a client: as a member too, if everybody is one."""
    colluders, lost = share_of(wish.clients, wish.corrupt), share_of(wish.clients, wish.dropout)
    require_one_shot(wish.clients, colluders, lost)
    committee = committee_plan(wish.committee, wish.clients, wish.corrupt)
    numbers, bits = committee.numbers(wish.clients, colluders, lost), wish.bits or 24
    everyone = committee.KIND is CommitteeKind.EVERYONE
    ring = choose_ring(wish.clients, wish.dim, bits, 0, numbers, everyone=everyone)
    total = sum(ring.bytes_each.values())
    return {
        "clients": wish.clients,
        **_committee_entry(OneShot(committee=committee), numbers, ring),
        "colluders": colluders,
        "minimum_survivors": wish.clients - lost,
        "bytes_per_client": total,
        "bytes_ratio": total / PrimeField(bits).packed_bytes(wish.dim),
        "bytes_each": ring.bytes_each,
    }


def validated_figures(wish: Wish) -> dict[str, Any]:
    """None: the bound covers noise, and noise follows from a goal."""
    del wish
    valid = "the goal that noise is planned for: the bound of validated rounds covers it"
    raise ConfigurationError("epsilon", "left out", valid)


def graph_figures(wish: Wish) -> dict[str, Any]:
    """The graph, its threshold, and the bytes of every client."""
    plan = plan_graph(
        wish.clients,
        wish.corrupt,
        wish.dropout,
        wish.mode,
        sparse=wish.sparse("sparse"),
        length=wish.dim,
        bits=wish.bits or 24,
        security_bits=SECURITY_BITS if wish.security_bits is None else wish.security_bits,
    )
    total = sum(plan.bytes_each.values())
    return {
        "clients": wish.clients,
        "mode": wish.mode.value,
        "graph": graph_entry(plan, wish.clients),
        "colluders": plan.colluders,
        "minimum_survivors": plan.minimum_survivors,
        "bytes_per_client": total,
        "bytes_ratio": total / plan.bytes_each["vector"],
        "bytes_each": plan.bytes_each,
    }


MANY_MASKS = 30
"""Masks with lost clients, for each client of the cohort, from which on one-shot rounds are named:
with 10 a server of pairwise rounds takes three times as long as one of one-shot rounds, with 100
sixteen times (docs/results/secagg.md)."""


def masks_note(figures: Mapping[str, Any]) -> str:
    """What to do about masks with lost clients, if there may be many; empty if not."""
    clients, lost = figures["clients"], figures["clients"] - figures["minimum_survivors"]
    masks = lost * figures.get("graph", {}).get("degree", 0)
    if masks <= MANY_MASKS * clients:
        return ""
    return (
        f"With {lost:,} clients lost the server takes off up to {masks:,} masks, an X25519 "
        "agreement for each: see --scheme one-shot, whose server has none."
    )


def graph_entry(graph: GraphPlan, clients: int) -> dict[str, int]:
    """Degree and threshold, and the security bits that a sparse graph has."""
    figures = {"degree": graph.degree or clients - 1, "threshold": graph.threshold}
    return {**figures, "security_bits": graph.security_bits} if graph.degree else figures


def deployment_figures(wish: Wish, epsilon: float, ledger: Path | None) -> dict[str, Any]:
    """Everything, for a goal."""
    goal, begun, before = PrivacyGoal(epsilon, wish.delta, wish.rounds), False, {}
    if ledger is not None:
        goal, begun = goal_of_ledger(ledger, goal)
        before = {"epsilon_spent": spent_before(ledger, goal)}
    if wish.bits is not None:
        raise ConfigurationError("bits", "given with epsilon", "left out: the plan computes it")
    size = max(1, int(wish.dim / wish.compression))
    sketch = (
        SketchSpec.identity(wish.dim) if wish.compression == 1.0 else spec_for_size(wish.dim, size)
    )
    chosen = training_plan(wish, goal)
    # A run goes on with the bound that it was begun with.
    chosen = chosen if begun else chosen.sharpened(sketch)
    plan = plan_deployment(chosen, sketch)
    order = chosen.goal.moment_order
    parameters, error = plan.parameters, plan.error
    return {
        "clients": wish.clients,
        "mode": wish.mode.value,
        **_structure(chosen, plan, wish.clients),
        "colluders": chosen.tolerated_colluders,
        "minimum_survivors": chosen.minimum_survivors,
        "dimension": wish.dim,
        "length": parameters.length,
        "scale": parameters.scale,
        "linf_bound": parameters.linf_bound,
        **noise_figures(parameters.mechanism),
        "removable_seeds": plan.seeds,
        "bits": plan.bits,
        "bits_exact": plan.bits_exact,
        "wrap_probability": parameters.wrap_probability,
        "bits_per_coordinate": plan.bits_per_coordinate,
        "megabytes_per_client": plan.bytes_per_client / 1e6,
        "bytes_each": plan.bytes_each,
        "squared_error": {
            "survivors": plan.survivors,
            "noise": error.noise,
            "compression_at_clip": error.compression,
            "gaussian_mechanism": error.gaussian,
            "noise_excess": error.excess,
        },
        **before,
        "bound": "domination" if order is None else {"moment_order": order},
        "epsilon_replace_one": json_number(plan.replace_one),
        "epsilons": plan.epsilons.as_json(),
    }


def _structure(chosen: TrainingPlan, plan: DeploymentPlan, clients: int) -> dict[str, Any]:
    """Who masks with whom: the graph of pairwise rounds, or committee and ring of one-shot ones."""
    if isinstance(plan.priced, GraphPlan):
        return {"graph": graph_entry(plan.priced, clients)}
    scheme = one_shot_of(chosen)
    return _committee_entry(scheme, scheme.numbers(chosen), plan.priced)


def _committee_entry(scheme: OneShot, numbers: CommitteeNumbers, priced: Priced) -> dict[str, Any]:
    is_ring = isinstance(priced, RingChoice)
    chosen: Any = of_kind("priced", priced, RingChoice if is_ring else BoundChoice)
    return {
        "scheme": scheme.KIND,
        "committee": {"kind": scheme.committee.KIND.value, **asdict(numbers)},
        "ring" if is_ring else "validation": figures_of(chosen),
    }


def spent_before(ledger: Path, goal: PrivacyGoal) -> float:
    """What the client that spent most has spent."""
    spent = account_ledger(ledger, goal.delta).epsilon
    if spent >= goal.epsilon:
        raise BudgetExceededError(spent, spent, goal.epsilon)
    return spent


def goal_of_ledger(ledger: Path, goal: PrivacyGoal) -> tuple[PrivacyGoal, bool]:
    """The goal with the bound that the ledger was begun with, and whether it has been begun."""
    entries = read_ledger(ledger)
    if is_local(entries):
        raise UnsupportedEventError("the ledger holds local reports, which a plan cannot cover")
    seed = seed_in_notes(entry.metadata for entry in entries)
    if seed is not None:
        # Its releases protected nobody: what it says was spent is not what its clients lost.
        value = f"that of a run with insecure_seed = {seed}"
        raise ParameterError("ledger", value, "the ledger of a deployment")
    if entries:
        recorded = entries[0].metadata.get("goal")
        order = recorded.get("moment_order") if isinstance(recorded, dict) else None
        goal = replace(goal, moment_order=order)
    for entry in entries:
        check_goal(entry.metadata, goal)
    return goal, bool(entries)


def training_plan(wish: Wish, goal: PrivacyGoal) -> TrainingPlan:
    """The plan of every round."""
    return TrainingPlan(
        goal=goal,
        cohort=wish.clients,
        tolerated_dropouts=share_of(wish.clients, wish.dropout),
        tolerated_colluders=share_of(wish.clients, wish.corrupt),
        clip_l2=wish.clip,
        noise=Independent(mechanism=cast(MechanismName, wish.mechanism), exact=wish.exact_noise),
        scheme=_SCHEMES[wish.scheme](wish, goal),
        error_share=wish.error_share,
        wrap_probability=wish.wrap_probability,
        lifetime_seconds=wish.lifetime,
    )


def _one_shot(wish: Wish, goal: PrivacyGoal) -> OneShot:
    del goal
    return OneShot(committee=committee_plan(wish.committee, wish.clients, wish.corrupt))


def _validated(wish: Wish, goal: PrivacyGoal) -> Validated:
    return Validated(committee=_one_shot(wish, goal).committee)


def _pairwise(wish: Wish, goal: PrivacyGoal) -> Pairwise:
    """What a plan of pairwise rounds says of the server and of the graph."""
    sparse, bits = wish.sparse("auto"), wish.security_bits
    if sparse is None:
        return Pairwise(mode=wish.mode, security_bits=bits)
    if bits is None and sparse:
        bits = fitting_security_bits(goal, wish.clients, wish.mode, wish.lifetime)
    graph = plan_graph(
        wish.clients,
        wish.corrupt,
        wish.dropout,
        wish.mode,
        sparse=sparse,
        security_bits=SECURITY_BITS if bits is None else bits,
    )
    return Pairwise(
        mode=wish.mode, security_bits=bits, degree=graph.degree, threshold=graph.threshold
    )


_FIGURES: Mapping[str, Callable[[Wish], dict[str, Any]]] = {
    Pairwise.KIND: graph_figures,
    OneShot.KIND: one_shot_figures,
    Validated.KIND: validated_figures,
}
_SCHEMES: Mapping[str, Callable[[Wish, PrivacyGoal], Scheme]] = {
    Pairwise.KIND: _pairwise,
    OneShot.KIND: _one_shot,
    Validated.KIND: _validated,
}
