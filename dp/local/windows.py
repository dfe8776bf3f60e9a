"""The exact law behind the scalar randomisers: a window of likely messages on a grid.

There are N messages 0 .. N - 1 and an input is a shift s in 0 .. S, S = N - w. Of M words that are
equally likely, A belong to every message of the window s .. s + w - 1 and B to every other one:

    P[j | s] = A/M if s <= j < s + w, else B/M,        M = w A + (N - w) B.

A, B and M are integers, and A <= B e^epsilon is checked in exact arithmetic: that is the whole
promise. The mean is linear in the shift: with rho = w (A - B)/M,

    E[j] - (N - 1)/2 = rho (s - S/2),

so message j, read as c (j - (N - 1)/2) with c = 2/(rho S), is an unbiased estimate of the input
t = 2 s/S - 1 in [-1, 1], for any N, w, A > B. An input between two shifts is first rounded to one
of them at random, which mixes laws and so neither changes the promise nor the mean.

N = 2, w = 1 is Duchi's randomiser, N = 2d, w = 1 randomised response over 2d vertices, and
w/N = 1/(e^{epsilon/2} + 1) the Piecewise Mechanism on a grid. No message is a float whose low bits
depend on the input: which floats a sampler of a continuous law can return would tell the input.

Source: Wang et al. 2019 (arXiv 1907.00782), Algorithm 2, for the continuous law; Mironov 2012 for
why it cannot be sampled in floats. The discrete law is this project's own (docs/local-dp.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dp.checks import require_within
from dp.keystream import Keystream, NoiseSeed, Usage
from dp.local._kernels import REFUSED, draw_window, round_to_shifts
from dp.local.base import exponential_below, require_epsilon

MAX_POINTS: Final = 1 << 32
"""Most messages: each keeps 32 bits of a 64-bit word at least."""

_WORDS: Final = 1 << 64
_WORD: Final = np.dtype("<u8")
_SATURATED_EPSILON: Final = 44.5
"""Above ln(2^64) = 44.36 no ratio of two counts of 64-bit words reaches e^epsilon."""


@dataclass(frozen=True, slots=True)
class Moments:
    """Closed-form moments of an unbiased estimate of an input on a grid.

    The second moment at shift s is ``constant + curvature (s - S/2)^2``; an input between two
    shifts has the chord of the two.

    Attributes:
        constant: >= 0.
        curvature: >= 0.
        highest: S.
    """

    constant: float
    curvature: float
    highest: int

    def scaled(self, factor: float) -> Moments:
        """Return the moments of the estimate times ``factor``, kept with probability 1/factor."""
        return Moments(self.constant * factor, self.curvature * factor, self.highest)

    def variance(self, values: float | NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the variance of the estimate of each input in [-1, 1]."""
        inputs = np.asarray(values, dtype=np.float64)
        position = (inputs + 1.0) * (self.highest / 2.0)
        up = position - np.floor(position)
        chord = (position - self.highest / 2.0) ** 2 + up * (1.0 - up)
        return self.constant + self.curvature * chord - np.square(inputs)

    @property
    def worst(self) -> float:
        """The largest variance over all inputs.

        At x steps beyond a shift the variance changes monotonically with the shift's distance
        from the middle, so that the last step or the middle one is the worst; within a step it
        is a parabola.
        """
        middle = -0.5 * (self.highest % 2)
        return max(self._worst_of_step(middle), self._worst_of_step(self.highest / 2.0 - 1.0))

    def _worst_of_step(self, start: float) -> float:
        """Return the largest variance between ``start`` and ``start`` + 1, counted from S/2."""
        square = 4.0 / self.highest**2
        top = self.curvature * (2.0 * start + 1.0) / (2.0 * square) - start
        x = min(max(top, 0.0), 1.0)
        chord = start**2 + (2.0 * start + 1.0) * x
        return self.constant + self.curvature * chord - square * (start + x) ** 2


@dataclass(frozen=True, slots=True)
class WindowLaw:
    """N messages, of which w in a row are more likely than the others.

    Attributes:
        points: N, ``2 <= points <= MAX_POINTS``.
        width: w, ``1 <= width < points``.
        inside: A, words of a message inside the window.
        outside: B, words of a message outside it, ``1 <= outside < inside``.
    """

    points: int
    width: int
    inside: int
    outside: int

    def __post_init__(self) -> None:
        """Raise ``ValueError`` unless the law is one, and fits 64-bit words."""
        require_within("points", self.points, 2, MAX_POINTS)
        require_within("width", self.width, 1, self.points - 1)
        if not (1 <= self.outside < self.inside and self.total <= _WORDS):
            raise ValueError(
                "inside and outside must be counts of 64-bit words with 1 <= outside < inside, "
                f"got {self.inside} and {self.outside}"
            )

    @property
    def total(self) -> int:
        """M, the words that stand for a message; the rest of the 2^64 are drawn again."""
        return self.width * self.inside + (self.points - self.width) * self.outside

    @property
    def highest(self) -> int:
        """S, the highest shift."""
        return self.points - self.width

    @property
    def gain(self) -> float:
        """rho, by which the mean message follows the shift."""
        return self.width * (self.inside - self.outside) / self.total

    @property
    def unit(self) -> float:
        """c, the distance of two messages' estimates, where inputs fill [-1, 1]."""
        return 2.0 / (self.gain * self.highest)

    @property
    def epsilon(self) -> float:
        """ln(A/B), what the law really spends, to rounding."""
        return math.log1p((self.inside - self.outside) / self.outside)

    def weights(self, shift: int) -> NDArray[np.uint64]:
        """Return the exact law of one shift: uint64[N], the words of each message out of M."""
        law = np.full(self.points, self.outside, dtype=np.uint64)
        law[shift : shift + self.width] = self.inside
        return law

    def probabilities(self, value: float) -> NDArray[np.float64]:
        """Return float64[N], the law for an input in [-1, 1] that is first rounded to a shift."""
        position = (value + 1.0) * self.highest / 2.0
        lower = min(math.floor(position), self.highest - 1)
        up = position - lower
        law = (1.0 - up) * self.weights(lower) + up * self.weights(lower + 1)
        return np.asarray(law / float(self.total), dtype=np.float64)

    def estimates(self, messages: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return what messages say of their input, without bias."""
        return np.asarray(self.unit * (messages - (self.points - 1) / 2.0), dtype=np.float64)

    @property
    def moments(self) -> Moments:
        """Moments of the estimate.

        The sum of (j - (N-1)/2)^2 is N (N^2 - 1)/12 over all messages, and over the window
        w (w^2 - 1)/12 + w (s - S/2)^2.
        """
        n, w, c = self.points, self.width, self.unit
        spread = Fraction(self.outside * n * (n * n - 1), 12) + Fraction(
            (self.inside - self.outside) * w * (w * w - 1), 12
        )
        return Moments(c * c * float(spread / self.total), c * c * self.gain, self.highest)

    def draw(self, shifts: NDArray[np.int64], seed: NoiseSeed) -> NDArray[np.int64]:
        """Draw one message for each shift, exactly by the law.

        Args:
            shifts: int64[n] in 0..S.
            seed: used under ``Usage.LOCAL_REPORT``; must not have drawn other messages.
        """
        stream = Keystream(seed.derive(Usage.LOCAL_REPORT))
        out = np.empty(shifts.size, dtype=np.int64)
        refused = self._draw_once(shifts, stream, out)
        while refused:
            again = np.flatnonzero(out == REFUSED)
            redrawn = np.empty(again.size, dtype=np.int64)
            refused = self._draw_once(shifts[again], stream, redrawn)
            out[again] = redrawn
        return out

    def _draw_once(
        self, shifts: NDArray[np.int64], stream: Keystream, out: NDArray[np.int64]
    ) -> int:
        """Fill ``out``, where refused words leave a mark; return how many did."""
        inside, outside = np.uint64(self.inside), np.uint64(self.outside)
        last, width = np.uint64(self.total - 1), np.int64(self.width)
        refused = start = 0
        for words in stream.chunks(_WORD, shifts.size):
            stop = start + words.size
            piece, drawn = shifts[start:stop], out[start:stop]
            refused += draw_window(piece, words, width, inside, outside, last, drawn)
            start = stop
        return refused


@lru_cache(maxsize=256)
def window_law(points: int, width: int, epsilon: float) -> WindowLaw:
    """Return the law whose ratio A/B is the largest that 64-bit words have at most e^epsilon."""
    require_epsilon(epsilon)
    if not 1 <= width < points <= MAX_POINTS:
        raise ValueError(f"width must lie below points, got {width} and {points}")
    if epsilon > _SATURATED_EPSILON:
        return WindowLaw(points, width, (_WORDS - (points - width)) // width, 1)
    ratio = exponential_below(epsilon)
    outside = max(1, math.floor(_WORDS / (width * ratio + (points - width))))
    room = (_WORDS - (points - width) * outside) // width
    return WindowLaw(points, width, min(math.floor(outside * ratio), room), outside)


def round_inputs(values: NDArray[np.float64], highest: int, seed: NoiseSeed) -> NDArray[np.int64]:
    """Round inputs in [-1, 1] to shifts 0..``highest`` at random, with the input as mean.

    The position of an input among the shifts is a double after two roundings, which bias the input
    by 3 2^-53 at most. Its fraction is compared with 64 bits.

    Args:
        values: float64[n], each in [-1, 1].
        seed: used under ``Usage.ROUNDING``; must not have rounded other values.
    """
    stream = Keystream(seed.derive(Usage.ROUNDING))
    out = np.empty(values.size, dtype=np.int64)
    start = 0
    for words in stream.chunks(_WORD, values.size):
        stop = start + words.size
        round_to_shifts(values[start:stop], float(highest), words, out[start:stop])
        start = stop
    return out
