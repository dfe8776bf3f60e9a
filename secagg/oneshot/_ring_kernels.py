"""Compiled negacyclic transforms over primes below 2^27, in 32-bit lanes.

A product with a constant w < p is taken by Shoup's method: with w' = floor(w 2^32 / p) and any
a < 2^32, a w - floor(a w' / 2^32) p lies in [0, 2p). Butterflies multiply first and then add, so
that each layer adds at most 2p to the largest value: 15 layers stay below 32 p < 2^32 without any
correction in between.

Source: Shoup's product and lazy butterflies: Harvey 2014, J. Symb. Comput. 60; the forward
transform: Longa and Naehrig 2016 (ia.cr/2016/504), Algorithm 1. The inverse is a cyclic
decimation in time followed by a product with psi^-n / N, so that it multiplies first as well.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilsum.compiled import compiled, sample

Residues = NDArray[np.uint32]

_U = np.uint32
_I = np.uint64
"""Indices are unsigned, so that none can mean one counted from the end."""


PRIMES = np.array([132_120_577, 113_246_209], np.uint32)
"""Two of the size that is used, for known answers."""


def residues(*shape: int) -> NDArray[np.uint32]:
    """Numbers below both primes."""
    return sample(*shape, below=int(PRIMES.min()), kind=np.uint32)


def constants(count: int) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """uint32[2, count] below both primes, the first of them 1, and the quotients of `times`."""
    values = residues(2, count).astype(np.uint64)
    values[:, 0] = 1
    shoup = (values << np.uint64(32)) // PRIMES[:, np.newaxis]
    return values.astype(np.uint32), shoup.astype(np.uint32)


@compiled()
def times(a: Any, w: Any, quotient: Any, p: Any) -> Any:
    """Product a w modulo p in [0, 2p), quotient = floor(w 2^32 / p); every argument is a uint32."""
    q = np.uint32((np.uint64(a) * np.uint64(quotient)) >> np.uint64(32))
    return np.uint32(np.uint32(a * w) - np.uint32(q * p))


@compiled()
def _at_most(value: Any, bound: Any) -> Any:
    """Subtract the bound from a value below twice the bound, unless it is below already."""
    return min(value, np.uint32(value - bound))


@compiled()
def _forward_two(x: Residues, w: Residues, q: Residues, p: Any, t: int) -> None:
    """One forward layer of stride t."""
    p2 = _U(p + p)
    groups = x.size // (2 * t)
    for g in range(groups):
        s = 2 * t * g
        x0, x1 = x[s : s + t], x[s + t : s + 2 * t]
        a, qa = w[groups + g], q[groups + g]
        for i in range(t):
            j = _I(i)
            u = x0[j]
            v = times(x1[j], a, qa, p)
            x0[j] = _U(u + v)
            x1[j] = _U(u - v + p2)


@compiled()
def _forward_four(x: Residues, w: Residues, q: Residues, p: Any, t: int) -> None:
    """Two forward layers, of strides 2t and t."""
    p2 = _U(p + p)
    groups = x.size // (4 * t)
    for g in range(groups):
        s = 4 * t * g
        x0, x1 = x[s : s + t], x[s + t : s + 2 * t]
        x2, x3 = x[s + 2 * t : s + 3 * t], x[s + 3 * t : s + 4 * t]
        first, second = groups + g, 2 * (groups + g)
        a, qa = w[first], q[first]
        b, qb = w[second], q[second]
        c, qc = w[second + 1], q[second + 1]
        for i in range(t):
            j = _I(i)
            u0, u1 = x0[j], x1[j]
            v2, v3 = times(x2[j], a, qa, p), times(x3[j], a, qa, p)
            y0, y2 = _U(u0 + v2), _U(u0 - v2 + p2)
            y1 = times(_U(u1 + v3), b, qb, p)
            y3 = times(_U(u1 - v3 + p2), c, qc, p)
            x0[j] = _U(y0 + y1)
            x1[j] = _U(y0 - y1 + p2)
            x2[j] = _U(y2 + y3)
            x3[j] = _U(y2 - y3 + p2)


@compiled()
def _forward_eight(x: Residues, w: Residues, q: Residues, p: Any) -> None:
    """The last three forward layers, of strides 4, 2 and 1, on eight neighbours at a time."""
    p2 = _U(p + p)
    groups = x.size // 8
    w1, q1 = w[groups : 2 * groups], q[groups : 2 * groups]
    w2, q2 = w[2 * groups : 4 * groups], q[2 * groups : 4 * groups]
    w4, q4 = w[4 * groups :], q[4 * groups :]
    for group in range(groups):
        g = _I(group)
        h, s = _I(4) * g, _I(8) * g
        a, qa = w1[g], q1[g]
        v4, v5 = times(x[s + _I(4)], a, qa, p), times(x[s + _I(5)], a, qa, p)
        v6, v7 = times(x[s + _I(6)], a, qa, p), times(x[s + _I(7)], a, qa, p)
        u0, u1, u2, u3 = x[s], x[s + _I(1)], x[s + _I(2)], x[s + _I(3)]
        y0, y1, y2, y3 = _U(u0 + v4), _U(u1 + v5), _U(u2 + v6), _U(u3 + v7)
        y4, y5 = _U(u0 - v4 + p2), _U(u1 - v5 + p2)
        y6, y7 = _U(u2 - v6 + p2), _U(u3 - v7 + p2)
        a, qa = w2[_I(2) * g], q2[_I(2) * g]
        b, qb = w2[_I(2) * g + _I(1)], q2[_I(2) * g + _I(1)]
        v2, v3, v6, v7 = times(y2, a, qa, p), times(y3, a, qa, p), times(y6, b, qb, p), y7
        v7 = times(y7, b, qb, p)
        u0, u1, u2, u3 = _U(y0 + v2), _U(y1 + v3), _U(y0 - v2 + p2), _U(y1 - v3 + p2)
        u4, u5, u6, u7 = _U(y4 + v6), _U(y5 + v7), _U(y4 - v6 + p2), _U(y5 - v7 + p2)
        v1 = times(u1, w4[h], q4[h], p)
        v3 = times(u3, w4[h + _I(1)], q4[h + _I(1)], p)
        v5 = times(u5, w4[h + _I(2)], q4[h + _I(2)], p)
        v7 = times(u7, w4[h + _I(3)], q4[h + _I(3)], p)
        x[s], x[s + _I(1)] = _U(u0 + v1), _U(u0 - v1 + p2)
        x[s + _I(2)], x[s + _I(3)] = _U(u2 + v3), _U(u2 - v3 + p2)
        x[s + _I(4)], x[s + _I(5)] = _U(u4 + v5), _U(u4 - v5 + p2)
        x[s + _I(6)], x[s + _I(7)] = _U(u6 + v7), _U(u6 - v7 + p2)


@compiled()
def _forward_row(x: Residues, w: Residues, q: Residues, p: Any) -> None:
    """Forward transform of one row below p, in place; the result is below p."""
    t = x.size // 2
    floor = 8 if x.size >= 8 else 1
    while t >= 2 * floor and t >= 2:
        _forward_four(x, w, q, p, t // 2)
        t //= 4
    while t >= floor:
        _forward_two(x, w, q, p, t)
        t //= 2
    if floor == 8:
        _forward_eight(x, w, q, p)
    # 1 stands at w[0]: psi to the power 0.
    one = q[0]
    for i in range(x.size):
        j = _I(i)
        x[j] = _at_most(times(x[j], _U(1), one, p), p)


@compiled()
def _inverse_eight(x: Residues, w: Residues, q: Residues, p: Any) -> None:
    """The first three inverse layers, of strides 1, 2 and 4: from below 2p to below 16p."""
    p2 = _U(p + p)
    p4 = _U(p2 + p2)
    p8 = _U(p4 + p4)
    a, qa = w[3], q[3]
    b, qb, c, qc, d, qd = w[5], q[5], w[6], q[6], w[7], q[7]
    for group in range(x.size // 8):
        s = _I(8) * _I(group)
        u0, u1, u2, u3 = x[s], x[s + _I(1)], x[s + _I(2)], x[s + _I(3)]
        u4, u5, u6, u7 = x[s + _I(4)], x[s + _I(5)], x[s + _I(6)], x[s + _I(7)]
        y0, y1, y2 = _U(u0 + u1), _U(u0 - u1 + p2), _U(u2 + u3)
        y3 = times(_U(u2 - u3 + p2), a, qa, p)
        y4, y5, y6 = _U(u4 + u5), _U(u4 - u5 + p2), _U(u6 + u7)
        y7 = times(_U(u6 - u7 + p2), a, qa, p)
        u0, u1, u2, u3 = _U(y0 + y2), _U(y1 + y3), _U(y0 - y2 + p4), _U(y1 - y3 + p2)
        u4 = _U(y4 + y6)
        u5 = times(_U(y5 + y7), b, qb, p)
        u6 = times(_U(y4 - y6 + p4), c, qc, p)
        u7 = times(_U(y5 - y7 + p2), d, qd, p)
        x[s], x[s + _I(4)] = _U(u0 + u4), _U(u0 - u4 + p8)
        x[s + _I(1)], x[s + _I(5)] = _U(u1 + u5), _U(u1 - u5 + p2)
        x[s + _I(2)], x[s + _I(6)] = _U(u2 + u6), _U(u2 - u6 + p2)
        x[s + _I(3)], x[s + _I(7)] = _U(u3 + u7), _U(u3 - u7 + p2)


@compiled()
def _inverse_two(x: Residues, w: Residues, q: Residues, p: Any, t: int, correct: bool) -> None:
    """One inverse layer of stride t; `correct` takes values below 16p to below 4p first."""
    p2 = _U(p + p)
    p4 = _U(p2 + p2)
    p8 = _U(p4 + p4)
    a, qa = w[t : 2 * t], q[t : 2 * t]
    for s in range(0, x.size, 2 * t):
        x0, x1 = x[s : s + t], x[s + t : s + 2 * t]
        for i in range(t):
            j = _I(i)
            u = x0[j]
            u = _at_most(_at_most(u, p8), p4) if correct else u
            v = times(x1[j], a[j], qa[j], p)
            x0[j] = _U(u + v)
            x1[j] = _U(u - v + p2)


@compiled()
def _inverse_four(x: Residues, w: Residues, q: Residues, p: Any, t: int) -> None:
    """Two inverse layers, of strides t and 2t."""
    p2 = _U(p + p)
    a, qa = w[t : 2 * t], q[t : 2 * t]
    b, qb = w[2 * t : 3 * t], q[2 * t : 3 * t]
    c, qc = w[3 * t : 4 * t], q[3 * t : 4 * t]
    for s in range(0, x.size, 4 * t):
        x0, x1 = x[s : s + t], x[s + t : s + 2 * t]
        x2, x3 = x[s + 2 * t : s + 3 * t], x[s + 3 * t : s + 4 * t]
        for i in range(t):
            j = _I(i)
            u0, u2 = x0[j], x2[j]
            v1, v3 = times(x1[j], a[j], qa[j], p), times(x3[j], a[j], qa[j], p)
            y0, y1 = _U(u0 + v1), _U(u0 - v1 + p2)
            y2 = times(_U(u2 + v3), b[j], qb[j], p)
            y3 = times(_U(u2 - v3 + p2), c[j], qc[j], p)
            x0[j] = _U(y0 + y2)
            x1[j] = _U(y1 + y3)
            x2[j] = _U(y0 - y2 + p2)
            x3[j] = _U(y1 - y3 + p2)


@compiled()
def inverse_row(
    x: Residues, w: Residues, q: Residues, last: Residues, last_q: Residues, p: Any
) -> None:
    """Inverse transform of one row below 2p, in place; the result is below p.

    Args:
        x: uint32[N], N at most 2^15.
        w: uint32[N]: at t + j, for powers of two t < N, psi^(-j N / t).
        q: uint32[N]: floor(w 2^32 / p).
        last: uint32[N]: psi^-n / N, or a multiple of it, and last_q: floor(last 2^32 / p).
        p: uint32, the prime.
    """
    t = 1
    if x.size >= 8:
        _inverse_eight(x, w, q, p)
        t = 8
        if x.size > 8:
            _inverse_two(x, w, q, p, 8, True)
            t = 16
    while 4 * t <= x.size:
        _inverse_four(x, w, q, p, t)
        t *= 4
    if t < x.size:
        _inverse_two(x, w, q, p, t, False)
    # Below 32p so far.
    for n in range(x.size):
        j = _I(n)
        x[j] = _at_most(times(x[j], last[j], last_q[j], p), p)


@compiled(lambda _: (residues(2, 2, 64), PRIMES, *constants(64)), answer=0x18FBE4BE)
def forward(values: NDArray[np.uint32], primes: Residues, w: Residues, q: Residues) -> None:
    """Forward negacyclic transforms of all rows, in place.

    Args:
        values: uint32[rows, L, N], residues below their primes; so afterwards.
        primes: uint32[L].
        w: uint32[L, N]: psi^bitrev(j).
        q: uint32[L, N]: floor(w 2^32 / p).
    """
    for row in range(values.shape[0]):
        for i in range(primes.size):
            _forward_row(values[row, i], w[i], q[i], primes[i])


@compiled(
    lambda _: (residues(2, 2, 32), PRIMES, *constants(32), *constants(32)),
    lambda _: (residues(2, 2, 64), PRIMES, *constants(64), *constants(64)),
    answer=0xE2A4A420,
)
def inverse(
    values: NDArray[np.uint32],
    primes: Residues,
    w: Residues,
    q: Residues,
    last: Residues,
    last_q: Residues,
) -> None:
    """Inverse negacyclic transforms of all rows, in place.

    Args:
        values: uint32[rows, L, N], residues below 2p; below p afterwards.
        primes: uint32[L].
        w: uint32[L, N], q: uint32[L, N]: see `inverse_row`.
        last: uint32[L, N]: psi^-n / N.
        last_q: uint32[L, N]: floor(last 2^32 / p).
    """
    for row in range(values.shape[0]):
        for i in range(primes.size):
            inverse_row(values[row, i], w[i], q[i], last[i], last_q[i], primes[i])


@compiled(
    lambda _: (residues(2, 2, 20), *constants(20), PRIMES, np.zeros((2, 2, 20), np.uint32)),
    answer=0xDD701807,
)
def products(
    a: NDArray[np.uint32], b: Residues, q: Residues, primes: Residues, out: NDArray[np.uint32]
) -> None:
    """Multiply every row of `a` by b, element by element, below p.

    Args:
        a: uint32[rows, L, N].
        b: uint32[L, N], below the primes.
        q: uint32[L, N]: floor(b 2^32 / p).
        primes: uint32[L].
        out: uint32[rows, L, N], output.
    """
    for row in range(a.shape[0]):
        for i in range(primes.size):
            x, y, z, qz, p = a[row, i], out[row, i], b[i], q[i], primes[i]
            for n in range(x.size):
                j = _I(n)
                y[j] = _at_most(times(x[j], z[j], qz[j], p), p)


@compiled(lambda _: (residues(2, 20), PRIMES, np.zeros((2, 20), np.uint32)), answer=0x8514E7BE)
def quotients(constants: Residues, primes: Residues, out: Residues) -> None:
    """Write floor(w 2^32 / p) for constants w below the primes; uint32[L, N] both.

    A quotient of doubles is off by one at most, and then corrected: it vectorises.
    """
    for i in range(primes.size):
        p = np.int64(primes[i])
        ratio = 4294967296.0 / np.float64(p)
        x, y = constants[i], out[i]
        for n in range(x.size):
            j = _I(n)
            quotient = np.int64(np.float64(x[j]) * ratio)
            rest = (np.int64(x[j]) << np.int64(32)) - quotient * p
            y[j] = _U(quotient - np.int64(rest < 0) + np.int64(rest >= p))


@compiled(
    lambda _: (
        sample(20, low=-(10**8), below=2 * 10**8, kind=np.int64),
        PRIMES,
        np.zeros((2, 20), np.uint32),
    ),
    answer=0x5FEAEA26,
)
def lift(values: NDArray[np.int64], primes: Residues, out: Residues) -> None:
    """Residues of integers above -p and below p: int64[count] to uint32[L, count]."""
    for i in range(primes.size):
        p, y = np.int64(primes[i]), out[i]
        for n in range(values.size):
            j = _I(n)
            y[j] = _U(values[j] + (p if values[j] < 0 else np.int64(0)))
