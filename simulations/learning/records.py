"""One finished round as `rounds.jsonl` has it: what every run records, and what some runs add.

Values are those of JSON; an infinite epsilon is the string "inf".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypeAlias, TypedDict, TypeVar, cast

from dp import FourEpsilons
from dp.mechanisms import DistributedMechanism


class Pair(TypedDict):
    """What dominates the releases: an open failure, else a Gaussian of this mu."""

    failure: float
    mu: float


class Epsilons(TypedDict):
    """What has been spent after a round, by adversary, and what is guaranteed."""

    server: float | str
    outsider: NotRequired[float | str]
    sybil: NotRequired[float | str]
    without_members: NotRequired[float | str]
    hidden_cohorts: NotRequired[float | str]  # of who is never told who came, nor how many
    secagg_alone: NotRequired[float | str]
    one_report: NotRequired[float]
    delta: NotRequired[float]
    colluders: NotRequired[int]
    amplified: NotRequired[bool]
    adjacency: NotRequired[str]
    guaranteed: NotRequired[float | str | None]
    guaranteed_against: NotRequired[str]  # the server, if left out
    gaussian: NotRequired[Pair]


ErrorParts: TypeAlias = dict[str, float | None]
"""Squared errors of a round's mean, by part, beside the one that was measured."""


class Facts(TypedDict):
    """What a source of means tells of the round that it has just run.

    `lost` are clients that went away before their update was in the sum, by stage, `lost_later`
    those after that. `error` is there where it was measured. The noise of one client is in `coins`,
    or the parameter of its law in `variance` if it is of another kind; a list for several sums.
    `released_norm_squared` is the squared length of the released mean of what clients sent, noise
    included: less `sketch_size` times `noise_variance`, it estimates that of the mean update.
    Where a part of the noise comes back, `sum_noise_variance` is of the noise in the sum of all
    means so far, `sum_independent_variance` what independent noise for the same promise would have
    come to; `members` added noise, and `members_returning` of them took some back.
    `by_clients` is what clients' own evaluation of the new model says, in rounds that have one: the
    share of right predictions and the mean loss, each with its standard error; None where the
    noise leaves nothing of it.
    `insecure_seed` is there in runs that protect nobody (`simulations.learning.insecure`), and
    `backdoor` where attackers plant one: the share of marked test examples that get their label.
    """

    lost: dict[str, int]
    lost_later: dict[str, int]
    error: NotRequired[ErrorParts]
    survivors: int
    sketch_size: int
    dimension: int
    compression: float
    bits: int | None
    bytes_per_client: float
    epsilons: Epsilons
    refused: NotRequired[int]
    coins: NotRequired[int | list[int]]
    variance: NotRequired[float | list[float]]
    scale: NotRequired[float | list[float]]
    clip_l2: NotRequired[float]
    noise_variance: NotRequired[float | list[float]]
    sum_noise_variance: NotRequired[float]
    sum_independent_variance: NotRequired[float]
    members: NotRequired[int]
    members_returning: NotRequired[int]
    released_norm_squared: NotRequired[float]
    rationale: NotRequired[str]
    figures: NotRequired[dict[str, float]]
    clip_of_an_update: NotRequired[float]
    threshold: NotRequired[float]
    share_below: NotRequired[float]
    clipping: NotRequired[dict[str, float]]
    by_clients: NotRequired[dict[str, float | None]]
    insecure_seed: NotRequired[int]
    backdoor: NotRequired[float]


class Record(Facts):
    """A finished round; `accuracy` and `loss` are None if the model was not tested after it."""

    round: int
    accuracy: float | None
    loss: float | None
    seconds: float
    stages: dict[str, float]
    cohort: int
    step: float


class Environment(TypedDict, total=False):
    """What ran, and where, as `environment.json` has it."""

    python: str
    system: str
    processor: str
    cores: int
    packages: dict[str, str]
    commit: str | None
    source: str


class RunSummary(TypedDict):
    """What a run came to, as `summary.json` has it.

    `compression` is the `average_rate` of all rounds, `compression_second_half` that of the rounds
    from their middle on, which the way of a controller to its size no longer shapes; runs of
    earlier versions do not have it.
    """

    rounds: int
    accuracy: float
    best_accuracy: float
    loss: float
    bytes_per_client: float
    compression: float
    compression_second_half: NotRequired[float]
    epsilons: Epsilons
    seconds_training_and_encoding: float
    resumed_after: int
    folder: str
    insecure_seed: NotRequired[int]
    protects: NotRequired[str]


R = TypeVar("R")

Cell: TypeAlias = bool | int | float | str | None
"""A single value of a record."""


def flat(record: Mapping[str, Any], prefix: str = "") -> dict[str, Cell]:
    """A record as one row.

    Inner names follow outer ones after a dot, and items of a list are numbered from 0. An infinite
    number, which JSON has as a word, is a number again.
    """
    found: dict[str, Cell] = {}
    for name, value in record.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{name}.")
        elif isinstance(value, list):
            found |= flat(
                {str(place): each for place, each in enumerate(value)}, f"{prefix}{name}."
            )
        else:
            found[prefix + name] = math.inf if value == "inf" else value
    return found


def with_noise(facts: Facts, *mechanisms: DistributedMechanism) -> Facts:
    """Facts of a round, and the noise of one client in each of its sums, all of one kind."""
    amounts = [mechanism.amount for mechanism in mechanisms]
    noise = {mechanisms[0].unit: amounts if len(amounts) > 1 else amounts[0]}
    return cast(Facts, {**facts, **noise})


def epsilons_of(found: FourEpsilons) -> Epsilons:
    """The four epsilons and their goal, as JSON values."""
    return cast(Epsilons, found.as_json())


def spent(epsilons: Epsilons) -> float | str:
    """What has been spent against whoever the guarantee is about."""
    return epsilons["outsider"] if "guaranteed_against" in epsilons else epsilons["server"]


def average_rate(records: Sequence[Mapping[str, Any]]) -> float:
    """How many times shorter the vectors of some rounds were, all rounds together.

    Values of all updates over values sent, both sketches counted: the harmonic mean of the rounds'
    rates. A mean of the rates themselves would say more than was saved.
    """
    return sum(int(r["dimension"]) for r in records) / sum(int(r["sketch_size"]) for r in records)


def second_half(records: Sequence[R]) -> Sequence[R]:
    """The rounds from their middle on; of an odd number, the one in the middle too."""
    return records[len(records) // 2 :]


def number(value: Any) -> float:
    """A figure of a record; NaN for none, and infinity has a name in JSON."""
    return math.nan if value is None else float(value)
