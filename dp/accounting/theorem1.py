"""cpSGD's own accountant, kept so that its published figures can be reproduced.

Source: Agarwal, Suresh, Yu, Kumar, McMahan 2018 (arXiv 1805.10559), Theorem 1. The mechanism is
M(x) = x + (Z - N p) s with Z_i ~ Bin(N, p) and s = 1/j for an integer j.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dp.checks import require_between_0_and_1, require_in, require_not_negative


@dataclass(frozen=True, slots=True)
class Theorem1Parameters:
    """The mechanism and its sensitivities, in the units of x.

    Attributes:
        coins: N, per coordinate.
        l1: sensitivity D1.
        l2: sensitivity D2.
        linf: sensitivity Dinf.
        dimension: d.
        probability: p of one coin, ``0 < p <= 1/2`` (the theorem's b_p is not symmetric in p).
        step: s, the weight of one coin.
    """

    coins: int
    l1: float
    l2: float
    linf: float
    dimension: int
    probability: float = 0.5
    step: float = 1.0

    def __post_init__(self) -> None:
        if self.coins < 0 or self.dimension < 1:
            raise ValueError(
                f"coins must be >= 0 and dimension >= 1, got {self.coins} and {self.dimension}"
            )
        for name in ("l1", "l2", "linf"):
            require_not_negative(name, getattr(self, name))
        if not 0.0 < self.probability <= 0.5:
            raise ValueError(f"probability must lie in (0, 1/2], got {self.probability!r}")
        require_in("step", self.step, 0.0, 1.0, "(]")

    @property
    def variance_coins(self) -> float:
        """Return N p (1 - p), the variance of the coins."""
        return self.coins * self.probability * (1.0 - self.probability)


@dataclass(frozen=True, slots=True)
class Theorem1Result:
    """An epsilon, and why it is infinite if it is.

    Attributes:
        epsilon: ``inf`` where the theorem does not apply.
        reason: empty where it applies, else the failed precondition with its figures.
    """

    epsilon: float
    reason: str = ""


def failed_precondition(parameters: Theorem1Parameters, delta: float) -> str:
    """Return the reason why Theorem 1 does not apply, or an empty string if it does.

    The precondition is N p (1-p) >= max(23 ln(10 d / delta), 2 Dinf / s).
    """
    have = parameters.variance_coins
    for_dimension = 23.0 * math.log(10.0 * parameters.dimension / delta)
    for_linf = 2.0 * parameters.linf / parameters.step
    if have < for_dimension:
        return f"N p (1-p) = {have:.6g} is below 23 ln(10 d / delta) = {for_dimension:.6g}"
    if have < for_linf:
        return f"N p (1-p) = {have:.6g} is below 2 Dinf / s = {for_linf:.6g}"
    return ""


def theorem1(parameters: Theorem1Parameters, delta: float) -> Theorem1Result:
    """Evaluate the theorem at one delta.

    Args:
        delta: in (0, 1).
    """
    require_between_0_and_1("delta", delta)
    reason = failed_precondition(parameters, delta)
    if reason:
        return Theorem1Result(math.inf, reason)
    return Theorem1Result(_formula(parameters, delta))


def theorem1_epsilon(parameters: Theorem1Parameters, delta: float) -> float:
    """Return the epsilon of ``theorem1``, ``inf`` where the theorem does not apply."""
    return theorem1(parameters, delta).epsilon


def _formula(parameters: Theorem1Parameters, delta: float) -> float:
    """Return the three terms of the theorem's epsilon, added."""
    p, q = parameters.probability, 1.0 - parameters.probability
    b = (2.0 / 3.0) * (p**2 + q**2) + (1.0 - 2.0 * p)
    c = math.sqrt(2.0) * (3.0 * p**3 + 3.0 * q**3 + 2.0 * p**2 + 2.0 * q**2)
    d = (4.0 / 3.0) * (p**2 + q**2)
    log_ten = math.log(10.0 / delta)
    log_gauss = math.log(1.25 / delta)
    log_dimension = math.log(20.0 * parameters.dimension / delta)
    variance = parameters.variance_coins
    main = parameters.l2 * math.sqrt(2.0 * log_gauss / variance)
    middle = parameters.l2 * c * math.sqrt(log_ten) + parameters.l1 * b
    last = parameters.linf * ((2.0 / 3.0) * log_gauss + d * log_dimension * log_ten)
    return (main + middle / (variance * (1.0 - delta / 10.0)) + last / variance) / parameters.step
