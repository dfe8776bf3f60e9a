"""Closed forms for the error of a count-mean sketch and of the norm estimate taken from it.

Assumptions, in all of them: the vector mu does not depend on the seed; each pair of coordinates
meets in a bucket with probability 1/P, independently over rows; signs are independent of buckets.
AES-CTR streams are taken to be uniform. The multiply-shift map of a 32-bit word to P buckets adds a
relative (P / 2^32)^2 at most to the probability of a meeting, which is below 1e-7 for P < 10^6.
The noise has mean zero, is independent of the seed and independent between coordinates, with the
same variance in each.

Units: `norm_squared` is |mu|_2^2, `fourth_power` is |mu|_4^4 = sum of mu_q^4, `noise_variance` is
the variance per coordinate of the mean sketch, in the units of mu squared.

Source: arXiv 2307.10999, Lemma 6; the variances are derived in docs/sketching.md.
"""

from __future__ import annotations

from sketch import _checks


def compression_error(dimension: int, size: int, norm_squared: float) -> float:
    """Expected squared l2 error of decoding, as far as compression causes it: (d - 1) |mu|^2 / L.

    The whole, E|S^T (S mu + xi) - mu|^2, is this and `noise_error`: arXiv 2307.10999, Lemma 6.
    """
    dimension = _checks.integer("dimension", dimension, 1)
    size = _checks.integer("size", size, 1)
    return (dimension - 1) * _checks.real("norm_squared", norm_squared, 0.0) / size


def noise_error(dimension: int, noise_variance: float) -> float:
    """Expected squared l2 error of decoding, as far as noise causes it, at any size: d sigma^2."""
    dimension = _checks.integer("dimension", dimension, 1)
    return dimension * _checks.real("noise_variance", noise_variance, 0.0)


def sketched_norm_variance(size: int, norm_squared: float, fourth_power: float) -> float:
    """Variance over the seed of |S mu|^2, whose mean is |mu|^2.

    (2 / L) (|mu|_2^4 - |mu|_4^4). It depends on R and P through L alone. Needs signs that are
    four-wise independent.
    """
    size = _checks.integer("size", size, 1)
    norm = _checks.real("norm_squared", norm_squared, 0.0)
    # A product overflows to infinity; a power of floats would raise.
    squared = norm * norm
    # The slack lets a one-coordinate vector pass, whose two powers differ by rounding only.
    fourth = _checks.real("fourth_power", fourth_power, 0.0, squared * (1.0 + 1e-9))
    return 2.0 / size * max(squared - fourth, 0.0)


def norm_estimate_variance(
    size: int, norm_squared: float, fourth_power: float, noise_variance: float
) -> float:
    """Variance of |S mu + xi|^2 - L sigma^2 as an estimate of |mu|^2, from one noisy sketch.

    (2 / L) (|mu|_2^4 - |mu|_4^4) + 4 sigma^2 |mu|^2 + 2 L sigma^4, for Gaussian noise. Other noise
    with third moment zero adds L * sigma^4 times its excess kurtosis.
    """
    noise = _checks.real("noise_variance", noise_variance, 0.0)
    hashing = sketched_norm_variance(size, norm_squared, fourth_power)
    return hashing + 4.0 * noise * norm_squared + 2.0 * size * noise * noise


def size_for_error_ratio(norm_squared: float, noise_variance: float, ratio: float) -> float:
    """The size at which compression adds `ratio` times the squared error of the noise.

    L = |mu|^2 / (ratio * sigma^2), by `compression_error` with d - 1 replaced by d.
    """
    norm = _checks.real("norm_squared", norm_squared, 0.0)
    noise = _checks.real("noise_variance", noise_variance, 0.0, open_low=True)
    return norm / (_checks.real("ratio", ratio, 0.0, open_low=True) * noise)
