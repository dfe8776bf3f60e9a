"""Distribution functions, bit by bit, against closed forms in 120 digits."""

from __future__ import annotations

import mpmath
import pytest
from dp_laws import Oracle, cumulative, leading_bits, probability

from dp.sampling import BinomialLaw, DiscreteGaussianLaw, RoundedGaussianLaw, SkellamLaw, laws
from dp.sampling.laws import MIN_VARIANCE, Law

UNBOUNDED: list[Oracle] = [
    DiscreteGaussianLaw(0.25),
    DiscreteGaussianLaw(0.1),  # no short binary fraction
    DiscreteGaussianLaw(2.0),
    DiscreteGaussianLaw(30.0),
    SkellamLaw(0.01),
    SkellamLaw(1.0),
    SkellamLaw(7.3),
    SkellamLaw(40.0),
    RoundedGaussianLaw(1.0),
    RoundedGaussianLaw(5.7),
]
BOUNDED: list[Oracle] = [
    BinomialLaw(0, 0.5),
    BinomialLaw(1, 0.5),
    BinomialLaw(7, 0.5),
    BinomialLaw(10, 0.375),
    BinomialLaw(64, 0.5),
    BinomialLaw(60, 0.1),
]
ids = {"ids": repr}


@pytest.mark.parametrize("bits", [1, 8, 16, 64, 128])
@pytest.mark.parametrize("law", UNBOUNDED + BOUNDED, **ids)
def test_words_are_the_leading_bits(law: Oracle, bits: int) -> None:
    found = law.cumulative(bits)
    expected = [leading_bits(law, found.first + i, bits) for i in range(len(found.words))]
    assert list(found.words) == expected


@pytest.mark.parametrize("bits", [1, 8, 64])
@pytest.mark.parametrize("law", UNBOUNDED, **ids)
def test_no_word_is_sure_to_miss_the_tails(law: Oracle, bits: int) -> None:
    """The smallest and the largest word are entries: they are looked into more deeply."""
    words = law.cumulative(bits).words
    assert words[0] == 0
    assert words[-1] == (1 << bits) - 1
    assert words.count(0) == 1 or bits == 1


@pytest.mark.parametrize("bits", [8, 64])
@pytest.mark.parametrize("law", BOUNDED, **ids)
def test_bounded_laws_end_with_their_support(law: BinomialLaw, bits: int) -> None:
    found = law.cumulative(bits)
    assert found.first >= 0
    assert found.first + len(found.words) <= law.trials
    assert all(word < 1 << bits for word in found.words)


@pytest.mark.parametrize("law", UNBOUNDED, **ids)
def test_more_bits_begin_with_the_fewer(law: Law) -> None:
    short, long = law.cumulative(24), law.cumulative(72)
    shift = short.first - long.first
    assert shift >= 0
    for i, word in enumerate(short.words):
        assert long.words[shift + i] >> 48 == word


@pytest.mark.parametrize("law", [SkellamLaw(300.0), DiscreteGaussianLaw(1234.5678)], **ids)
def test_spot_checks_of_long_tables(law: Oracle) -> None:
    found = law.cumulative(64)
    for x in (-120, -71, -1, 0, 1, 50, 110):
        assert found.words[x - found.first] == leading_bits(law, x, 64)


@pytest.mark.parametrize(("trials", "p"), [(4200, 0.5), (4201, 0.5), (600, 0.1)])
def test_long_binomials_against_whole_numbers(
    trials: int, p: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    law = BinomialLaw(trials, p)
    by_enclosure = law.cumulative(64)
    monkeypatch.setattr(laws, "_EXACT_BITS", 1 << 20)
    assert by_enclosure == law.cumulative(64)


def test_an_odd_number_of_fair_coins_splits_in_the_middle() -> None:
    found = BinomialLaw(100_001, 0.5).cumulative(64)
    assert found.words[50_000 - found.first] == 1 << 63


def test_the_perfect_code_of_length_ninety_is_an_exact_integer() -> None:
    """1 + 90 + 90 * 89 / 2 = 2^12: an F(x) with few bits, far from the middle."""
    found = BinomialLaw(90, 0.5).cumulative(78)
    assert found.words[2 - found.first] == 1


def test_what_cannot_be_certified_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(laws, "_EXACT_BITS", 0)
    with pytest.raises(ArithmeticError, match="integer"):
        BinomialLaw(4, 0.25).cumulative(16)


def test_a_skellam_law_cut_short_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SkellamLaw, "_reach", lambda self, bits: 20)
    with pytest.raises(ArithmeticError, match="beyond 20"):
        SkellamLaw(50.0).cumulative(64)


def test_an_inaccurate_library_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """With an error larger than the spare digits nothing can be told from an integer."""
    monkeypatch.setattr(laws, "_LIBRARY_UNITS", 1 << 700)
    with pytest.raises(ArithmeticError, match="integer"):
        RoundedGaussianLaw(3.0).cumulative(64)


@pytest.mark.parametrize("sigma_squared", [0.02, 0.1, 0.5, 1.0, 3.9, 4.0, 50.0])
def test_variance_of_the_discrete_gaussian(sigma_squared: float) -> None:
    law = DiscreteGaussianLaw(sigma_squared)
    reach = range(-90, 91)
    exact = float(mpmath.fsum(z * z * probability(law, z) for z in reach))
    assert law.variance == pytest.approx(exact, rel=1e-12, abs=1e-300)
    assert law.variance <= sigma_squared
    assert law.noise_limit is None


def test_moments_of_the_other_laws() -> None:
    assert (BinomialLaw(10, 0.25).mean, BinomialLaw(10, 0.25).variance) == (2.5, 1.875)
    skellam = SkellamLaw(3.0)
    exact = float(mpmath.fsum(z * z * probability(skellam, z) for z in range(-80, 81)))
    assert exact == pytest.approx(skellam.variance, rel=1e-12)
    assert skellam.noise_limit is None


@pytest.mark.parametrize("law", [SkellamLaw(2.0), DiscreteGaussianLaw(2.0)], **ids)
def test_the_oracle_is_a_law(law: Oracle) -> None:
    assert float(mpmath.fsum(probability(law, x) for x in range(-60, 61))) == pytest.approx(1.0)
    assert float(cumulative(law, 0) + cumulative(law, -1)) == pytest.approx(1.0)


@pytest.mark.parametrize("extreme", [MIN_VARIANCE, 2.0**-10])
@pytest.mark.parametrize("kind", [DiscreteGaussianLaw, SkellamLaw])
def test_almost_no_noise(kind: type, extreme: float) -> None:
    found = kind(extreme).cumulative(64)
    assert -6 <= found.first <= -1
    assert len(found.words) <= 12
