"""What a mechanism costs, by every accountant, and how much noise a target needs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dp import (
    Adjacency,
    BinomialRelease,
    DiscreteGaussianRelease,
    DominationAccountant,
    Event,
    FailingGaussian,
    SkellamRelease,
    coins_for_epsilon,
    epsilons,
    replace_one,
    variance_for_epsilon,
)
from dp.accounting import ContractionAccountant
from dp.report import EpsilonReport
from protocol.errors import ConfigurationError
from simulations.reports.account.export import gaussian_figures
from simulations.reports.account.question import Question, check_question


@dataclass(frozen=True, slots=True)
class MechanismAccount:
    """What a mechanism costs."""

    question: Question  # what was asked
    report: EpsilonReport  # epsilon by every accountant
    noise: float  # coins or variance, given or solved for
    noise_of: str  # what it is an amount of
    # the open failure, else Gaussian, that dominates all rounds; None if there is none
    pair: FailingGaussian | None

    @property
    def delta(self) -> float:
        """That all figures are stated at."""
        return self.report.delta

    def as_json(self) -> dict[str, object]:
        """Return JSON values; infinity is the string "inf"."""
        coins = self.question.mechanism == "binomial"
        name, of = ("coins", "coins_are") if coins else ("variance", "variance_is")
        clients = self.question.clients
        return {
            **self.report.as_json(),
            "mechanism": self.question.mechanism,
            name: self.noise,
            of: self.noise_of,
            "rounds": self.question.rounds,
            **gaussian_figures(self.pair),
            **({} if clients is None else {"clients": clients}),
        }


def account_mechanism(question: Question) -> MechanismAccount:
    """Epsilon of a mechanism by every accountant, after solving for the noise if that was asked."""
    check_question(question)
    try:
        noise, noise_of = _noise(question)
        event = _event(question, noise)
        report = epsilons([(event, question.rounds)], question.delta, question.adjacency)
        pair = _dominating(event, question, report.winner)
    except ValueError as error:
        raise ConfigurationError(question.mechanism, str(error), "see --help") from error
    return MechanismAccount(question, report, noise, noise_of, pair)


def _dominating(event: Event, question: Question, winner: str) -> FailingGaussian | None:
    """The open failure, else Gaussian, that dominates all rounds; None if there is none."""
    asked = replace_one(event) if question.adjacency is Adjacency.REPLACE_ONE else event
    if winner == "contraction":
        never = ContractionAccountant()
        never.compose(asked, question.rounds)
        return never.gaussian()
    accountant = DominationAccountant()
    if not accountant.supports(asked):
        return None
    accountant.compose(asked, question.rounds)
    return accountant.gaussian(question.delta)


def _noise(question: Question) -> tuple[float, str]:
    """The noise, given or solved for, and what it is an amount of."""
    if question.mechanism == "binomial":
        coins = _solved(question) if question.coins is None else question.coins
        return coins, "per coordinate, of all honest surviving clients together"
    value = _solved(question) if question.variance is None else question.variance
    if question.mechanism == "skellam":
        return value, "of a coordinate, of all honest surviving clients together"
    return value, "the parameter of one client's discrete Gaussian"


def _solved(question: Question) -> float:
    """The least coins or variance that meets the target."""
    target = math.nan if question.target_epsilon is None else question.target_epsilon
    factor = 2 if question.adjacency is Adjacency.REPLACE_ONE else 1
    shape = (question.delta, factor * question.l2, factor * question.linf, question.rounds)
    if question.mechanism == "binomial":
        return coins_for_epsilon(target, *shape)
    return variance_for_epsilon(target, *shape, contributors=question.clients)


def _event(
    question: Question, noise: float
) -> BinomialRelease | SkellamRelease | DiscreteGaussianRelease:
    vector = (question.l2, question.linf, question.dim)
    if question.mechanism == "binomial":
        return BinomialRelease(int(noise), *vector)
    if question.mechanism == "skellam":
        return SkellamRelease(noise, *vector)
    return DiscreteGaussianRelease(noise, question.clients or 0, *vector)
