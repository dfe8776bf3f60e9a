"""What a round did, as immutable values that accountants read.

A mechanism never computes epsilon and an accountant never adds noise; an event is all that
passes between them. Rules for changing this module:

* An event says what *happened*, with the coins that really remained, not what was planned.
* Fields are in integer units, after scaling. A field is never given a new meaning: a new
  mechanism is a new class, with a new tag in the ledger's registry.
* An accountant that has no theorem for an event refuses it. It never guesses.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from dp.checks import require_float, require_in, require_integer, require_not_negative
from dp.errors import UnsupportedEventError
from dp.event_kinds import Event, IntegerRelease, NoisyRelease, PureRelease, SampledRelease


class Adjacency(enum.Enum):
    """Which two inputs must be hard to tell apart. The text is printed next to every epsilon."""

    ZERO_OUT = "zero-out: one client's contribution replaced by the zero vector"
    REPLACE_ONE = "replace-one: one client's contribution replaced by any other within its bounds"
    ANY_INPUT = "any input: any input of one client replaced by any other"

    def __str__(self) -> str:
        """Return the text to print."""
        return self.value


def _require_size(name: str, value: float) -> None:
    """Raise unless ``value`` is a finite float that is not negative."""
    require_float(name, value)
    require_not_negative(name, value)


def _require_positive(name: str, value: float) -> None:
    """Raise unless ``value`` is a finite float above 0."""
    _require_size(name, value)
    if value == 0.0:
        raise ValueError(f"{name} must be positive, got 0.0")


def _require_probability(name: str, value: float, largest: float = 1.0) -> None:
    """Raise unless ``value`` is a float in (0, ``largest``]."""
    _require_size(name, value)
    require_in(name, value, 0.0, largest, "(]")


def _require_vector(l2_sensitivity: float, linf_sensitivity: int, dimension: int) -> None:
    """Raise unless these can bound how two integer vectors differ."""
    _require_size("l2_sensitivity", l2_sensitivity)
    require_integer("linf_sensitivity", linf_sensitivity, 1)
    require_integer("dimension", dimension, 1)


@dataclass(frozen=True, slots=True)
class BinomialRelease(IntegerRelease):
    """The server saw ``sum of integer vectors + Bin(N, 1/2) - N/2`` in every coordinate.

    Mathematics: M(x) = x + Z with Z_i independent, Z_i ~ Bin(N, 1/2) - N/2, N = ``coins``.
    Two adjacent inputs differ by an integer vector v with ``|v|_2 <= l2_sensitivity`` and
    ``max |v_i| <= linf_sensitivity``.

    Assumptions: the coins are fair, independent, and unknown to the adversary. ``coins``
    therefore counts the coins of honest clients whose input is in the sum and whose noise
    seeds were not revealed; coins of colluding clients do not count. The cohort is known to
    the adversary, so nothing is gained from sampling it.

    Attributes:
        coins: N, per coordinate, >= 0.
        l2_sensitivity: integer units, finite, >= 0.
        linf_sensitivity: integer units, >= 1.
        dimension: number of coordinates, >= 1.
    """

    tag: ClassVar[str] = "binomial"

    coins: int
    l2_sensitivity: float
    linf_sensitivity: int
    dimension: int

    def __post_init__(self) -> None:
        require_integer("coins", self.coins, 0)
        _require_vector(self.l2_sensitivity, self.linf_sensitivity, self.dimension)

    @property
    def noise_variance(self) -> float:
        """Return N/4; infinity where that is no float, for a ledger may name any number."""
        return self.coins / 4 if self.coins.bit_length() < 1024 else math.inf

    def own_noise(self, contributors: int) -> BinomialRelease:
        """Leave an equal part of the coins, rounded down."""
        return replace(self, coins=self.coins // contributors)


@dataclass(frozen=True, slots=True)
class DiscreteGaussianRelease(IntegerRelease):
    """The server saw an integer sum with the noise of several discrete Gaussians.

    Mathematics: M(x) = x + sum of ``contributors`` independent draws per coordinate of the law
    P[z] proportional to exp(-z^2 / (2 ``local_variance``)) on the integers. The sum of discrete
    Gaussians is not a discrete Gaussian, which accountants must not forget.

    Assumptions and adjacency: as for ``BinomialRelease``; ``contributors`` counts honest
    clients that remained in the sum.

    Attributes:
        local_variance: the parameter sigma^2 of one client's law, finite, >= 0.
        contributors: honest surviving clients, >= 0.
        l2_sensitivity: integer units, finite, >= 0.
        linf_sensitivity: integer units, >= 1.
        dimension: number of coordinates, >= 1.

    Source: Kairouz, Liu and Steinke 2021 (arXiv 2102.06387).
    """

    tag: ClassVar[str] = "discrete-gaussian"

    local_variance: float
    contributors: int
    l2_sensitivity: float
    linf_sensitivity: int
    dimension: int

    def __post_init__(self) -> None:
        _require_size("local_variance", self.local_variance)
        require_integer("contributors", self.contributors, 0)
        _require_vector(self.l2_sensitivity, self.linf_sensitivity, self.dimension)

    @property
    def noise_variance(self) -> float:
        """Return the sum of the parameters, which is nearly the variance."""
        return self.local_variance * self.contributors

    def own_noise(self, contributors: int) -> DiscreteGaussianRelease:
        """Leave one contributor, if there is one."""
        return replace(self, contributors=min(self.contributors, 1))


@dataclass(frozen=True, slots=True)
class SkellamRelease(IntegerRelease):
    """The server saw an integer sum with Skellam noise in every coordinate.

    Mathematics: M(x) = x + Z with Z_i the difference of two independent Poisson variables of
    mean ``variance`` / 2. Sums of Skellam variables are Skellam with the sum of the variances.

    Assumptions and adjacency: as for ``BinomialRelease``; ``variance`` is that of the honest
    clients that remained in the sum.

    Attributes:
        variance: of the whole noise of a coordinate, integer units squared, finite, >= 0.
        l2_sensitivity: integer units, finite, >= 0.
        linf_sensitivity: integer units, >= 1.
        dimension: number of coordinates, >= 1.

    Source: Agarwal, Kairouz and Liu 2021 (arXiv 2110.04995).
    """

    tag: ClassVar[str] = "skellam"

    variance: float
    l2_sensitivity: float
    linf_sensitivity: int
    dimension: int

    def __post_init__(self) -> None:
        _require_size("variance", self.variance)
        _require_vector(self.l2_sensitivity, self.linf_sensitivity, self.dimension)

    @property
    def noise_variance(self) -> float:
        """Return the variance."""
        return self.variance

    def own_noise(self, contributors: int) -> SkellamRelease:
        """Leave an equal part of the variance."""
        return replace(self, variance=self.variance / contributors)


@dataclass(frozen=True, slots=True)
class GaussianRelease(NoisyRelease):
    """A trusted server released a sum with Gaussian noise: the baseline of central privacy.

    Mathematics: M(x) = x + N(0, ``sigma``^2 I). Units are whatever both fields share.

    Attributes:
        sigma: standard deviation, finite, >= 0.
        l2_sensitivity: finite, >= 0.
    """

    tag: ClassVar[str] = "gaussian"

    sigma: float
    l2_sensitivity: float

    def __post_init__(self) -> None:
        _require_size("sigma", self.sigma)
        _require_size("l2_sensitivity", self.l2_sensitivity)

    @property
    def noise_variance(self) -> float:
        """Return the variance sigma^2 of the noise."""
        return self.sigma**2

    def replace_one(self) -> GaussianRelease:
        """Double the sensitivity."""
        return replace(self, l2_sensitivity=2.0 * self.l2_sensitivity)


@dataclass(frozen=True, slots=True)
class LaplaceRelease(PureRelease):
    """A trusted server released one integer with discrete Laplace noise: central privacy.

    Mathematics: M(x) = q(x) + Z, P[Z = z] proportional to exp(-|z| / ``scale``), and q changes by
    at most ``sensitivity`` between neighbours. So M is (sensitivity / scale, 0)-private.

    Attributes:
        scale: integer units, finite, > 0.
        sensitivity: integer units, >= 1.
    """

    tag: ClassVar[str] = "laplace"

    scale: float
    sensitivity: int

    def __post_init__(self) -> None:
        _require_positive("scale", self.scale)
        require_integer("sensitivity", self.sensitivity, 1)

    @property
    def epsilon(self) -> float:
        """Return the pure epsilon."""
        return self.sensitivity / self.scale


@dataclass(frozen=True, slots=True)
class AboveThresholdRelease(PureRelease):
    """A trusted server said which of a stream of noisy integers was the first below a threshold.

    Mathematics: the threshold has discrete Laplace noise of ``threshold_scale``, every integer
    fresh noise of ``query_scale``; each integer, less its threshold, changes by at most
    ``sensitivity`` between neighbours. The stream ends at the first "yes". It counts once, however
    many integers there were, with epsilon = sensitivity / threshold_scale + 2 sensitivity /
    query_scale (proof in docs/mean-estimation.md).

    Attributes:
        threshold_scale: integer units, finite, > 0.
        query_scale: integer units, finite, > 0.
        sensitivity: integer units, >= 1.

    Source: Dwork, Roth 2014, Theorem 3.23, with "above" turned into "below".
    """

    tag: ClassVar[str] = "above-threshold"

    threshold_scale: float
    query_scale: float
    sensitivity: int

    def __post_init__(self) -> None:
        _require_positive("threshold_scale", self.threshold_scale)
        _require_positive("query_scale", self.query_scale)
        require_integer("sensitivity", self.sensitivity, 1)

    @property
    def epsilon(self) -> float:
        """Return the pure epsilon of the whole stream."""
        return self.sensitivity / self.threshold_scale + 2.0 * self.sensitivity / self.query_scale


@dataclass(frozen=True, slots=True)
class LocalRelease(Event):
    """One report of a local randomiser: pure epsilon for any two inputs of the client.

    Mathematics: P[M(x) = y] <= exp(``epsilon``) P[M(x') = y] for every message y and any two
    inputs x, x'. Adjacency is ``Adjacency.ANY_INPUT``, which is stronger than zero-out.

    Assumptions: none on the server or on other clients; the client's random bits are its own.
    Reports of one client add up; reports of different clients do not.

    Attributes:
        epsilon: nats, finite, > 0.
    """

    tag: ClassVar[str] = "local"

    epsilon: float

    def __post_init__(self) -> None:
        _require_positive("epsilon", self.epsilon)

    def replace_one(self) -> LocalRelease:
        """Return the same event: a report is private for any two inputs as it is."""
        return self


@dataclass(frozen=True, slots=True)
class LevelRelease(Event):
    """cpSGD as printed: a sum of k-level quantised vectors with Bin(N, p) noise.

    Every client clips to ``norm`` D in L2, clips each coordinate to [-X, X], rounds at random to
    one of k levels, 0 .. k - 1, of width 2X/(k - 1), and adds Bin(m, p); N = n m = ``coins``.
    Rounding is unconditional, so that the sensitivities hold with a probability only.

    Attributes:
        coins: N, per coordinate, >= 0, of honest clients that remained in the sum.
        probability: p of one coin, in (0, 1/2].
        levels: k, >= 2.
        norm: D over X, the L2 bound in units of the coordinate clip, finite, > 0.
        dimension: d, >= 1.
        rotated: whether X comes from a random rotation that clips with some probability.

    Source: Agarwal et al. 2018 (arXiv 1805.10559), Theorems 3 and 4, Equation (10).
    """

    tag: ClassVar[str] = "levels"

    coins: int
    probability: float
    levels: int
    norm: float
    dimension: int
    rotated: bool

    def __post_init__(self) -> None:
        require_integer("coins", self.coins, 0)
        _require_probability("probability", self.probability, 0.5)
        require_integer("levels", self.levels, 2)
        _require_positive("norm", self.norm)
        require_integer("dimension", self.dimension, 1)
        if not isinstance(self.rotated, bool):
            raise TypeError(f"rotated must be a bool, got {type(self.rotated).__name__}")

    def own_noise(self, contributors: int) -> LevelRelease:
        """Leave an equal part of the coins, rounded down."""
        return replace(self, coins=self.coins // contributors)


@dataclass(frozen=True, slots=True)
class NonPrivateRelease(Event):
    """Something was released without noise. Its epsilon is infinite for every delta < 1.

    It exists so that an ablation runs through the same accounting and says plainly what it is
    worth. Secure aggregation alone is this event: it hides single inputs, but states no
    epsilon.
    """

    tag: ClassVar[str] = "non-private"

    def replace_one(self) -> NonPrivateRelease:
        """Return the same event."""
        return self

    def own_noise(self, contributors: int) -> NonPrivateRelease:
        """Return the same event."""
        return self


@dataclass(frozen=True, slots=True)
class Composition(Event):
    """Several releases that belong together, for instance the two sums of one round.

    Equal to composing the parts one after the other, except that an accountant takes all of
    them or none.

    Attributes:
        parts: the releases, in order; at least one.
    """

    tag: ClassVar[str] = "composition"

    parts: tuple[Event, ...]

    def __post_init__(self) -> None:
        """Raise unless the parts are a tuple with at least one member."""
        if not isinstance(self.parts, tuple):
            raise TypeError(f"parts must be a tuple, got {type(self.parts).__name__}")
        if not self.parts:
            raise ValueError("a composition needs at least one part, got none")

    def replace_one(self) -> Composition:
        """Apply to every part."""
        return Composition(tuple(part.replace_one() for part in self.parts))

    def own_noise(self, contributors: int) -> Composition:
        """Apply to every part."""
        return Composition(tuple(part.own_noise(contributors) for part in self.parts))


@dataclass(frozen=True, slots=True)
class PoissonSampled(SampledRelease):
    """A release over a cohort that every client joined by a coin of its own, seen by an outsider.

    Mathematics: each client is in the sum with probability ``rate``, independently of the others
    and of the past; then ``event``.

    Assumptions: the adversary sees only what is released. It does not know who took part, *nor
    how many did*: the sum is divided by a fixed number, and the noise and its amount do not
    depend on the cohort. Clients keep no state between rounds, and no cap limits their rounds.
    A server is not such an adversary, and its accountants refuse this event.

    Attributes:
        rate: q, in (0, 1].
        event: what a cohort releases.
    """

    tag: ClassVar[str] = "poisson-sampled"

    rate: float
    event: NoisyRelease

    def __post_init__(self) -> None:
        _require_probability("rate", self.rate)
        _require_sampled(self.event)


@dataclass(frozen=True, slots=True)
class FixedSizeSampled(SampledRelease):
    """A release over a cohort of fixed size, drawn without replacement, seen by an outsider.

    Mathematics: a uniform subset of ``size`` of ``population`` clients, drawn afresh and
    independently of the past, is in the sum; then ``event``. The sensitivities of ``event`` are
    those of zero-out: they bound every client's vector, *all* clients alike.

    Assumptions: the adversary sees only what is released, and does not know who took part; it
    may know how many. The noise does not depend on the cohort. Clients keep no state between
    rounds, and no cap limits their rounds.

    Attributes:
        size: clients of a cohort, >= 1.
        population: clients drawn from, >= ``size``.
        event: what a cohort releases.
    """

    tag: ClassVar[str] = "fixed-size-sampled"

    size: int
    population: int
    event: NoisyRelease

    def __post_init__(self) -> None:
        require_integer("size", self.size, 1)
        require_integer("population", self.population, self.size)
        _require_sampled(self.event)

    @property
    def rate(self) -> float:
        """Return the share of the population that takes part."""
        return self.size / self.population


@dataclass(frozen=True, slots=True)
class Allocated(SampledRelease):
    """A block of rounds of which every client joined one, by a coin of its own, for an outsider.

    Mathematics: each client draws one of ``rounds`` rounds, uniformly and independently of all
    other clients, blocks and results, and is in the sum of that round only; each round does
    ``event``. One event stands for the whole block, also if the client dropped out, or the run
    stopped in the middle of it for a reason that does not follow the coins: count it when the
    first round of the block begins.

    Assumptions: the adversary sees only what is released. It does not know who took part, *nor
    how many did*; sums are divided by a fixed number. The noise, the contributions of others, and
    whether a round takes place and has a result do not depend on the client's coin. Clients keep
    no state between blocks. ``event`` is *all* that a round releases: two sums of one round share
    the coin, and must not be counted as two events of this kind. Rounds that differ are counted by
    the worst.
    A server is not such an adversary, and its accountants refuse this event.

    Attributes:
        rounds: t, that each client drew one of, >= 1.
        event: what a cohort releases in one round.

    Source: docs/accounting.md, "One round of a block"; Feldman, Shenfeld 2025 (arXiv 2502.08202).
    """

    tag: ClassVar[str] = "allocated"

    rounds: int
    event: NoisyRelease

    def __post_init__(self) -> None:
        require_integer("rounds", self.rounds, 1)
        _require_sampled(self.event)


def _require_sampled(event: object) -> None:
    """Raise unless a sampled event holds one plain release."""
    if not isinstance(event, NoisyRelease):
        raise TypeError(f"event must be a release with noise, got {type(event).__name__}")


def replace_one(event: Event) -> Event:
    """Return an event whose zero-out epsilon is the replace-one epsilon of ``event``.

    Raises:
        UnsupportedEventError: see ``Event.replace_one``; or it is no event.
    """
    if not isinstance(event, Event):
        raise UnsupportedEventError(f"no event: {type(event).__name__}")
    return event.replace_one()


def leaves(event: object) -> Iterator[object]:
    """Yield the simple events inside ``event``, in order, whatever their type.

    A sampled event is one leaf: what is inside it happened to a cohort that was drawn.
    """
    if isinstance(event, Composition):
        for part in event.parts:
            yield from leaves(part)
    else:
        yield event
