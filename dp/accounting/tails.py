"""Tails of a noise law, with a safe side above and below.

For a symmetric log-concave Z this module tabulates U(j) = P[Z >= j] for j = 1..reach in
logarithms. Negative j follow from symmetry: U(j) = 1 - U(1 - j).

Floating point: tails are summed in log space from the far end; what lies beyond the table is at
most a geometric series, because the ratio of neighbours falls. Rounding errors measured against
50-digit arithmetic stay under 1e-11 (binomial, Skellam, discrete Gaussian); the two tables are
moved apart by a hundred times that, and by the law's own error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from dp.accounting.laws import FloatArray, LogMasses, NoiseLaw
from dp.checks import require_within

TAIL_SLACK: Final = 1e-9
"""Relative widening of every tail, in the safe direction."""


@dataclass(frozen=True, slots=True, eq=False)
class LogTails:
    """Bounds of ln U(j) for j = 1..reach; entry i belongs to j = i + 1.

    Attributes:
        lower: float64[reach], never above the true value.
        upper: float64[reach], never below the true value, at most ln(1/2).
    """

    lower: FloatArray
    upper: FloatArray


def log_remainder(law: NoiseLaw, masses: LogMasses) -> float:
    """Return an upper bound of ln P[Z > reach], by a geometric series; ``inf`` if there is none.

    The ratio of neighbours falls with j (log-concavity), so the last ratio of the table bounds
    all those beyond it.
    """
    reach = masses.values.size - 1
    if reach >= law.support or masses.values[-1] == -math.inf:
        return -math.inf
    log_ratio = float(masses.values[-1] - masses.values[-2]) + 2.0 * masses.error
    if not log_ratio < 0.0:
        return math.inf
    return float(masses.values[-1]) + log_ratio - math.log(-math.expm1(log_ratio))


def log_tails(law: NoiseLaw, reach: int) -> LogTails:
    """Tabulate both bounds of ln P[Z >= j], j = 1..reach."""
    require_within("reach", reach, 1, law.support)
    return tails_of(law, law.log_masses(reach))


def tails_of(law: NoiseLaw, masses: LogMasses) -> LogTails:
    """Sum a table of masses from its far end."""
    outside_in = masses.values[:0:-1]
    remainder = log_remainder(law, masses)
    lower = np.logaddexp.accumulate(outside_in)[::-1]
    upper = np.logaddexp.accumulate(np.concatenate([[remainder], outside_in]))[:0:-1]
    return LogTails(
        lower=lower + (math.log1p(-TAIL_SLACK) - masses.error),
        # P[Z >= 1] is below one half by symmetry, which rounding must not contradict.
        upper=np.minimum(upper + (math.log1p(TAIL_SLACK) + masses.error), -math.log(2.0)),
    )
