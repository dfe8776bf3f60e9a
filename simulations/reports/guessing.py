"""What an epsilon means, as a game: how often a guess about one client can be right.

A client took part in its rounds or sent zeros in all of them, with equal odds; an attacker who
knows everything else says which. Of a test with false alarms a and misses b, (a + b) / 2 of the
guesses are wrong, and the trade-off curve bounds b from below for every a.
"""

from __future__ import annotations

import math

from dp import FailingGaussian
from dp.accounting import gaussian_mu
from simulations.learning.configuration import RunConfig
from simulations.learning.records import Epsilons, number


def best_guess(pair: FailingGaussian) -> float:
    """The largest share of right guesses that a pair leaves: (1 + total variation) / 2."""
    return (1.0 + pair.delta(0.0)) / 2.0


def best_guess_at(epsilon: float, delta: float) -> float:
    """The same, if one (epsilon, delta) is all that is known: 1 - (1 - delta) / (1 + e^epsilon).

    Source: Kairouz, Oh and Viswanath 2015, Theorem 2.1: the corner of the region of errors.
    """
    return 1.0 - (1.0 - delta) / (1.0 + math.exp(min(epsilon, 700.0)))


def guaranteed(config: RunConfig, epsilons: Epsilons | None) -> float:
    """Epsilon that a run keeps to wherever it stops: its goal; infinite if it promises nothing.

    Args:
        epsilons: of its last record; None if there is none.
    """
    if config.engine.aggregator == "plain":
        return math.inf
    said = None if epsilons is None else epsilons.get("guaranteed")
    return config.privacy.goal(config.participations).epsilon if said is None else number(said)


def promised_guess(config: RunConfig, epsilons: Epsilons) -> float:
    """The largest share of right guesses that a run's goal leaves, wherever the run stops."""
    goal, delta = guaranteed(config, epsilons), config.privacy.delta
    pair = epsilons.get("gaussian")
    if math.isinf(goal):
        return 1.0
    if pair is not None:
        failure = number(pair["failure"])
        return best_guess(FailingGaussian(failure, gaussian_mu(goal, delta - failure)))
    if config.engine.aggregator == "central":
        return best_guess(FailingGaussian(0.0, gaussian_mu(goal, delta)))
    return best_guess_at(goal, delta)


def meaning(config: RunConfig, epsilons: Epsilons) -> str:
    """What is guaranteed, as a sentence about guesses with its assumptions; empty if nothing is."""
    goal = guaranteed(config, epsilons)
    if math.isinf(goal) or config.engine.insecure_seed is not None:
        return ""
    kind, saw = config.engine.aggregator, "the server"
    if kind == "central":
        saw = "somebody with the released models"
    elif colluders := epsilons.get("colluders"):
        saw += f" and {colluders} colluding client{'s' if colluders > 1 else ''}"
    question = "whether this client took part in its rounds or sent zeros instead"
    if kind == "local":
        question = "which of two sets of data this client has"
    share = math.ceil(1e3 * promised_guess(config, epsilons)) / 10.0
    return (
        f"What epsilon {goal:.3g} means: an attacker who knows every update but one client's and "
        f"sees all that {saw} saw, and who guesses {question}, is right at most {share:.1f}% of "
        "the time, if both are equally likely beforehand. Tossing a coin is right 50% of the time."
    )
