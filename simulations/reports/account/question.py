"""What `veilsum account` was asked about a mechanism, and every question that makes no sense."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from dp import Adjacency
from dp.clipping import MAX_L2_BOUND
from protocol.errors import ConfigurationError

MECHANISMS: Final = ("binomial", "skellam", "discrete_gaussian")
ADJACENCIES: Final = {"zero-out": Adjacency.ZERO_OUT, "replace-one": Adjacency.REPLACE_ONE}
"""What epsilons may be about, by the names of the command line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What was asked about a mechanism; `None` where an option was not given."""

    mechanism: str  # one of `MECHANISMS`
    coins: int | None  # N of the sum (binomial)
    variance: float | None  # of the sum (skellam), or one client's parameter (discrete_gaussian)
    clients: int | None  # honest contributors (discrete_gaussian)
    l2: float  # sensitivity in integer units
    linf: int  # likewise
    dim: int  # coordinates
    delta: float  # of the whole run
    rounds: int  # releases of the run
    target_epsilon: float | None  # solve for coins or variance instead
    adjacency: Adjacency = Adjacency.ZERO_OUT  # zero-out, or replace-one


def adjacency_of(name: str) -> Adjacency:
    """The adjacency of a name on the command line."""
    if name not in ADJACENCIES:
        raise ConfigurationError("adjacency", f"value {name!r}", ", ".join(ADJACENCIES))
    return ADJACENCIES[name]


def check_question(question: Question) -> None:
    """Refuse options that make no sense, each in its own words."""
    if question.mechanism not in MECHANISMS:
        raise ConfigurationError(
            "mechanism", f"value {question.mechanism!r}", ", ".join(MECHANISMS)
        )
    check_delta(question.delta)
    # Noise is solved for up to what a vector may have; written so that NaN fails the test.
    if question.target_epsilon is not None and not 0.0 <= question.l2 <= MAX_L2_BOUND:
        raise ConfigurationError("l2", f"value {question.l2}", f"in 0 .. {MAX_L2_BOUND:g}")
    if question.rounds < 1:
        raise ConfigurationError("rounds", f"value {question.rounds}", "at least 1")
    discrete = question.mechanism == "discrete_gaussian"
    if discrete and (question.clients is None or question.clients < 1):
        raise ConfigurationError("clients", f"value {question.clients}", "at least 1")
    if not discrete and question.clients is not None:
        raise ConfigurationError("clients", "given", "only with --mechanism discrete_gaussian")
    _check_noise(question)


def check_delta(delta: float) -> None:
    """Raise unless delta lies strictly between 0 and 1."""
    if not 0.0 < delta < 1.0:
        raise ConfigurationError("delta", f"value {delta}", "strictly between 0 and 1")


def _check_noise(question: Question) -> None:
    """Refuse the wrong kind of noise, too much of it, or none."""
    coins = question.mechanism == "binomial"
    wanted, other = ("coins", "variance") if coins else ("variance", "coins")
    if getattr(question, other) is not None:
        raise ConfigurationError(other, "given", f"--{wanted} with {question.mechanism}")
    given = getattr(question, wanted)
    if (given is None) == (question.target_epsilon is None):
        valid = f"either --{wanted} or --target-epsilon"
        raise ConfigurationError(wanted, "not given" if given is None else "given as well", valid)
    if coins and given is not None and (given < 0 or given % 2):
        problem = f"value {given} is {'odd' if given % 2 else 'negative'}"
        raise ConfigurationError("coins", problem, "an even number of at least 0")
    if not coins and given is not None and not 0.0 <= given < math.inf:
        raise ConfigurationError("variance", f"value {given}", "finite and not negative")
