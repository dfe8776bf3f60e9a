"""What an epsilon far above 1 still protects from: reconstruction by somebody who knows little.

An adversary wants r numbers of a client, f(Y), up to their scale: a direction u in r dimensions.
Before the report his belief about u has a density of at most e^rho0 against the uniform one on the
sphere; rho0 = 0 is "no idea". An epsilon-private report multiplies any belief by e^epsilon at most,
so that whatever direction v he names after it,

    P[<u, v> >= a | report] <= cap(a) e^(epsilon + rho0)
                            <= sqrt(8) e^(-(r - 1) a^2 / 2) e^(epsilon + rho0),

where cap(a) is the share of the sphere within that angle. <u, v> >= a is |u - v| <= sqrt(2 - 2a):
reports are (sqrt(2 - 2a), omega(a))-protected, omega(a) being the right-hand side.

It is a bound on one report; reports of one client add up their epsilons. Where the bound is 1 or
more it says nothing at all, as it mostly does for the paper's figures (docs/local-dp-sqsgd.md).

Source: sqSGD, Theorem 1 and Equation 9, after Bhowmick et al. 2018 (arXiv 1812.00984), Lemma 2.2.
The distance printed there belongs to the norm, the loss printed there is its square.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from scipy import special

from dp.checks import require_between_0_and_1, require_in, require_integer

MIN_TARGETS: Final = 4
"""The paper's condition on r."""


@dataclass(frozen=True, slots=True)
class ReconstructionProtection:
    """The bound for one target and one adversary.

    Attributes:
        targets: r >= 4, numbers that are to be reconstructed up to their scale.
        epsilon: of everything that he sees of the client, >= 0.
        prior: rho0 >= 0, logarithm of how much likelier than uniform any direction was to him.
    """

    targets: int
    epsilon: float
    prior: float = 0.0

    def __post_init__(self) -> None:
        require_integer("targets", self.targets, MIN_TARGETS)
        for name in ("epsilon", "prior"):
            value = getattr(self, name)
            if not 0.0 <= value < math.inf:
                raise ValueError(f"{name} must be finite and at least 0, got {value!r}")

    def log_breach(self, closeness: float) -> float:
        """Return ln omega(a), the printed bound; 0 or more says nothing.

        Args:
            closeness: a in [0, 1], the cosine of the angle that counts as a success.
        """
        require_in("closeness", closeness, 0.0, 1.0)
        cap = 0.5 * math.log(8.0) - 0.5 * (self.targets - 1) * closeness**2
        return cap + self.epsilon + self.prior

    def breach(self, closeness: float) -> float:
        """Return min(1, omega(a)): a bound on the probability of success, given any report."""
        return math.exp(min(0.0, self.log_breach(closeness)))

    def exact_breach(self, closeness: float) -> float:
        """Return min(1, cap(a) e^(epsilon + rho0)), with the cap's true share of the sphere.

        cap(a) = I(1 - a^2; (r-1)/2, 1/2)/2, I being the regularised incomplete beta function.
        Shares below 1e-300 are taken as that.
        """
        require_in("closeness", closeness, 0.0, 1.0)
        share = 0.5 * special.betainc(0.5 * (self.targets - 1), 0.5, 1.0 - closeness**2)
        return math.exp(min(0.0, math.log(max(share, 1e-300)) + self.epsilon + self.prior))

    def closeness_for(self, probability: float) -> float | None:
        """Return the smallest a with omega(a) at most this, or None if not even a = 1 has it.

        Args:
            probability: in (0, 1).
        """
        require_between_0_and_1("probability", probability)
        excess = self.log_breach(0.0) - math.log(probability)
        closeness = math.sqrt(2.0 * excess / (self.targets - 1))
        return closeness if closeness <= 1.0 else None
