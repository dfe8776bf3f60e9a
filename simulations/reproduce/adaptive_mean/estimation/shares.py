"""One goal, divided up: the goal of a single round that takes a share of the whole.

Gaussian privacy adds up in squares: releases that are dominated by shifts mu_t are together
dominated by the shift with mu^2 = sum of mu_t^2. A round's share is its part of that sum, the same
thing as its share of zero-concentrated privacy, rho = mu^2 / 2.

Source: docs/accounting.md, Gaussian domination; docs/mean-estimation.md.
"""

from __future__ import annotations

import math

from dp.accounting import gaussian_epsilon, gaussian_mu
from protocol.goal import PrivacyGoal

_ROUNDING = 1e-9
"""Relative room for bisections, so that shares of 1 in all stay within the goal."""


def largest_mu(goal: PrivacyGoal) -> float:
    """Return the shift of all releases together: what is left of delta behind the reserve."""
    return gaussian_mu(goal.epsilon, goal.delta - goal.reserve.total) * (1.0 - _ROUNDING)


def round_goal(goal: PrivacyGoal, share: float) -> PrivacyGoal:
    """Return the goal of one round with this share, in (0, 1], of a goal counted by domination.

    Its failure probability delta0 is that of every round of the whole goal, whose `rounds` is the
    most releases there will be; so both count the same event alike, see `FailureReserve`.
    """
    delta = goal.delta / goal.rounds
    one = PrivacyGoal(goal.epsilon, delta, 1)
    mu = largest_mu(goal) * math.sqrt(share)
    return PrivacyGoal(gaussian_epsilon(mu, delta - one.reserve.total), delta, 1)
