"""Schedules with an honest server: a hostile wire, and clients that lie."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from secagg import SessionContext
from simulations.threats.faults.behaviours import Lie, Verdict
from simulations.threats.faults.liars import Liar
from simulations.threats.faults.rounds import Round, ServerMaker, honest_parties
from simulations.threats.faults.tally import Tally
from simulations.threats.faults.wire import Wire
from simulations.threats.game.contexts import Wanted, random_context, random_inputs


def play_wire(
    rng: np.random.Generator,
    number: int,
    rate: float,
    tally: Tally,
    server: ServerMaker | None = None,
) -> Verdict:
    """Honest clients on a hostile wire."""
    context = random_context(rng, number)
    inputs = random_inputs(rng, context)
    honest = honest_parties(context, inputs, list(range(context.size)), rng.bytes(4))
    wire = Wire(rng, rate, tally)
    return Round(context, honest, dict(enumerate(inputs)), {}, wire, tally, server).verdict()


def play_liar(
    lie: Lie,
    rng: np.random.Generator,
    number: int,
    rate: float,
    tally: Tally,
    server: ServerMaker | None = None,
) -> Verdict:
    """One or two liars among honest clients; on half of the schedules the wire is hostile too."""
    context = random_context(rng, number, _needs(lie))
    rate = rate if rng.random() < 0.5 else 0.0
    liars, leaver = _cast(lie, context, rng)
    inputs = random_inputs(rng, context)
    salt = rng.bytes(4)
    indices = [u for u in range(context.size) if u not in liars]
    honest = honest_parties(context, inputs, indices, salt)
    if leaver is not None:
        honest[leaver].leaves_before = lie.company_leaves_before
    known = {u: inputs[u] for u in honest}
    lying = {u: Liar(context, u, lie, inputs[u], salt, rng) for u in liars}
    wire = Wire(rng, rate, tally)
    verdict = Round(context, honest, known, lying, wire, tally, server).verdict()
    # The liar is one client less, and every round here can spare one.
    if lie.bearable and not rate and verdict.outcome != "exact sum" and not verdict.problem:
        return replace(verdict, problem=f"one liar ended the round: {verdict.outcome}")
    return verdict


def _needs(lie: Lie) -> Wanted:
    """Room for the liar, and for the honest client that leaves, to be lost."""
    spare = 1 + (lie.company_leaves_before is not None)
    return replace(lie.wanted, spare=max(spare, lie.wanted.spare))


def _cast(
    lie: Lie, context: SessionContext, rng: np.random.Generator
) -> tuple[list[int], int | None]:
    """Who lies, and which honest client leaves, if one does."""
    order = [int(u) for u in rng.permutation(context.size)]
    count = 1 if lie.bearable else int(rng.integers(1, 3))
    return order[:count], None if lie.company_leaves_before is None else order[count]
