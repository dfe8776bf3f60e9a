"""What taking part in a run of correlated noise costs a client, round by round.

The covariance of the run is tridiagonal, so one forward elimination gives the charge
mu^2 = B' Sigma^-1 B, and a round costs a few operations however long the run is. A charge grows
after its client took part, when noise comes back; the `reserve` is the most that it can come to.

Source: docs/correlated-noise.md, "The protected client" and "What the future can still cost".
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dp.checks import require_integer, require_not_negative, require_positive


@dataclass(frozen=True, slots=True)
class RoundNoise:
    """The honest noise of one round, as it was recorded; integer squares for each coordinate.

    Args:
        fresh: F_t, the variance that entered in this round, > 0.
        returned: A_{t-1}, the variance of the round before that was taken back; 0 in the first.
    """

    fresh: float
    returned: float = 0.0

    def __post_init__(self) -> None:
        """Raise ``ValueError`` naming the variance that is out of range."""
        require_positive("fresh", self.fresh)
        require_not_negative("returned", self.returned)


@dataclass(frozen=True, slots=True)
class Charge:
    """One client's charge after the rounds so far; begin with `Charge()`.

    Attributes:
        rounds: t, those so far.
        mu_squared: of what the server has learned already.
    """

    rounds: int = 0
    mu_squared: float = 0.0
    _before: float = 0.0
    """mu_squared without the last round."""
    _pivot: float = math.inf
    """L_tt^2: the variance of the last round's noise, given that of the rounds before."""
    _carried: float = 0.0
    """L_tt u_t: what of the client is in the last round, past rounds taken into account."""
    _fresh: float = math.inf

    def after(self, noise: RoundNoise, l2_bound: float) -> Charge:
        """The charge after one more round.

        Args:
            l2_bound: B_t, largest Euclidean norm of the client's contribution, integer units; 0 if
                it took no part.

        Raises:
            ValueError: the bound is negative or not finite; or more comes back than was fresh.
        """
        require_not_negative("l2_bound", l2_bound)
        if noise.returned > self._fresh or (not self.rounds and noise.returned):
            fresh = self._fresh if self.rounds else 0.0
            raise ValueError(
                f"returned must be at most what the round before added, {fresh!r}, "
                f"got {noise.returned!r}"
            )
        factor = noise.returned / self._pivot
        pivot = noise.fresh + noise.returned * (1.0 - factor)
        carried = l2_bound + factor * self._carried
        return Charge(
            rounds=self.rounds + 1,
            mu_squared=self.mu_squared + carried * carried / pivot,
            _before=self.mu_squared,
            _pivot=pivot,
            _carried=carried,
            _fresh=noise.fresh,
        )

    def reserve(
        self, left: int, fresh: float, returnable: float, now: float | None = None
    ) -> float:
        """The most that the charge can come to, if the client contributes nothing more.

        Args:
            left: J, rounds until the run ends, >= 0.
            fresh: least fresh variance of each of them, > 0.
            returnable: most of one of these rounds that may come back; below ``fresh``, because
                something of every round stays.
            now: most of the last round that may come back; None for ``returnable``.
        """
        require_integer("left", left, 0)
        require_positive("fresh", fresh)
        if not 0.0 <= returnable < fresh:
            raise ValueError(f"returnable must be below {fresh!r}, got {returnable!r}")
        leaving = returnable if now is None else now
        if not 0.0 <= leaving <= self._fresh:
            raise ValueError(f"now must lie in 0..{self._fresh!r}, got {leaving!r}")
        if not left or not leaving or not self._carried:
            return self.mu_squared
        ahead = fresh_ahead(left - 1, fresh, returnable)
        lost = leaving * leaving / (leaving + ahead)
        return self._before + self._carried * self._carried / (self._pivot - lost)


def fresh_ahead(left: int, fresh: float, returnable: float) -> float:
    """f_j: what is left of a round's fresh variance when all that may come back has."""
    ahead = fresh
    for _ in range(left):
        following = fresh - returnable * returnable / (returnable + ahead)
        if following == ahead:
            break
        ahead = following
    return ahead
