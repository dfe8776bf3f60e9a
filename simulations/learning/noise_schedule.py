"""Noise that is not independent: for which schedule it is planned, and what it goes together with.

Noise cancels in the model only if every round adds it up in the same way. So the sketch, the clip
and the divisor of the mean stay the same over a run, and the server's steps are linear.

Source: docs/correlated-noise.md, "What it is worth".
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from dp.correlated.planning import NoisePlan, Schedule, ServerSteps, Weights, plan_noise
from dp.correlated.strategies import BandedPlan, plan_banded
from protocol.allocation import SHARE, Allocation
from protocol.errors import ConfigurationError, Remedy
from protocol.noise.noise import Returned
from protocol.planning.configuration import (
    IndependentTable,
    NamedTable,
    OneShotTable,
    ReturnedTable,
    build_plan,
)
from protocol.planning.training_plan import TrainingPlan
from protocol.training.private import configured_hiding
from secagg import ParameterError

if TYPE_CHECKING:
    from simulations.learning.configuration import RunConfig, Server


class Seats(NamedTuple):
    """Members of a named committee, and how many of them may be away."""

    size: int
    away: int


def schedule_of(config: RunConfig) -> Schedule:
    """Who takes part when, at most: cohorts slide over a fixed order."""
    apart = _apart(config) or _most_apart(config)
    try:
        return Schedule(config.rounds, config.participations, apart)
    except ValueError as error:
        raise ConfigurationError("rounds", str(error), "fewer rounds") from None


def noise_weights(server: Server, rounds: int) -> Weights:
    """float64[T, T]: the model after round t adds up the sums of the rounds with row t."""
    return steps_of(server, rounds).weights(rounds)


def steps_of(server: Server, rounds: int) -> ServerSteps:
    """How this server adds up the sums of its rounds; see `noise_weights`."""
    rates = tuple(server.private_rate(number, rounds) for number in range(rounds))
    return ServerSteps(rates, server.momentum)


def training_plan(config: RunConfig) -> TrainingPlan:
    """The plan of a run whose sums are those of clients."""
    noise = None
    if isinstance(config.noise, ReturnedTable):
        if config.noise.share is not None:
            raise ConfigurationError(
                "noise.share",
                f"value {config.noise.share}",
                "left out: where clients and members add the noise it is planned",
            )
        schedule = schedule_of(config)
        noise = Returned(
            rounds=schedule.rounds,
            apart=schedule.apart,
            away=config.faults.members_away,
            optimiser=steps_of(config.server, config.rounds),
        )
    plan = build_plan(config, config.charged_rounds, noise=noise)
    allocation = allocation_of(config)
    if allocation is None:
        return plan
    return configured_hiding(plan, allocation, "turns, or engine.aggregator = central")


def allocation_of(config: RunConfig) -> Allocation | None:
    """Who comes when, if clients' own coins say so; None if cohorts take turns."""
    if config.cohort.choice != "allocation":
        return None
    population, block, rounds = config.task.population, config.block, config.rounds
    if config.engine.aggregator == "central":
        found = Allocation(population=population, block=block, rounds=rounds)
        if found.failure <= SHARE * config.privacy.delta:
            return found
        valid = f"larger: nobody may come, with a chance of {found.failure:.2g}"
        raise ConfigurationError("task.population", f"value {population}", valid)
    lost, tolerated = config.faults.dropout, config.cohort.tolerated_dropouts
    try:
        return Allocation.within(config.privacy.delta, population, block, rounds, lost, tolerated)
    except ParameterError as error:
        problem = f"value {tolerated} with faults.dropout = {lost}, of which each client has a coin"
        raise ConfigurationError("cohort.tolerated_dropouts", problem, error.valid) from None


def members_away(config: RunConfig, round_number: int) -> tuple[int, ...]:
    """Members of a named committee who are away in a round: they take turns."""
    size = _named(config).size
    count = round(config.faults.members_away * size)
    return tuple(sorted((round_number * count + each) % size for each in range(count)))


def returned_plan(config: RunConfig) -> NoisePlan:
    """The share that comes back, and what it is worth."""
    schedule = schedule_of(config)
    share = config.noise.share if isinstance(config.noise, ReturnedTable) else None
    try:
        return _returned(schedule, config.server, share)
    except ValueError as error:
        raise ConfigurationError("noise.share", f"value {share} ({error})", "less") from None


def banded_plan(config: RunConfig) -> BandedPlan:
    """The banded matrix, and what it is worth."""
    return _banded(schedule_of(config), config.server)


@lru_cache(maxsize=64)
def _returned(schedule: Schedule, server: Server, share: float | None) -> NoisePlan:
    return plan_noise(schedule, noise_weights(server, schedule.rounds), share)


@lru_cache(maxsize=64)
def _banded(schedule: Schedule, server: Server) -> BandedPlan:
    return plan_banded(schedule, noise_weights(server, schedule.rounds))


def noise_problems(config: RunConfig) -> Iterator[ConfigurationError]:
    """What keeps the noise of a run from going together with the rest of it."""
    share, named = config.faults.members_away, _named(config)
    if (share and round(share * named.size) > named.away) or (share and not named.size):
        yield ConfigurationError(
            "faults.members_away",
            f"value {share}",
            f"at most scheme.committee.away = {named.away} of the {named.size} members of a named "
            "committee",
            named.away / named.size if named.size else 0.0,
        )
    if config.noise.kind != "independent":
        yield from _without_source(config)
        yield from _not_linear(config)
        yield from _too_far_apart(config)


def check_plan(config: RunConfig) -> None:
    """See that noise that is not independent can be planned, and that it pays."""
    noise = config.noise.kind
    if noise == "independent":
        if config.cohort.choice == "allocation":
            _ = (
                allocation_of(config)
                if config.engine.aggregator == "central"
                else training_plan(config)
            )
        return
    if noise == "returned" and config.engine.aggregator != "central":
        _ = training_plan(config)
    pays = (returned_plan(config) if noise == "returned" else banded_plan(config)).pays
    if not pays:
        schedule = schedule_of(config)
        raise ConfigurationError(
            "noise.kind",
            f"value {noise!r} gains nothing for clients in {schedule.participations} of "
            f"{schedule.rounds} rounds, at least {schedule.apart} apart",
            "independent; or clients that come back seldom, from a larger task.population or a "
            "smaller cohort.size; and a share that is planned",
            "independent",
        )


def _without_source(config: RunConfig) -> Iterator[ConfigurationError]:
    """Nobody who can add such noise, or no goal that it is planned for."""
    noise, aggregator = config.noise.kind, config.engine.aggregator
    able = ("real", "ideal", "central") if noise == "returned" else ("central",)
    if aggregator not in able:
        yield ConfigurationError(
            "noise.kind",
            f"value {noise!r} for {aggregator}",
            f"independent; or engine.aggregator = {' or '.join(able)}",
            "independent",
        )
    if config.privacy.noise_multiplier is not None:
        yield ConfigurationError(
            "privacy.noise_multiplier",
            f"given for {noise} noise, of which one round says little",
            "privacy.epsilon in its place",
        )


def _not_linear(config: RunConfig) -> Iterator[ConfigurationError]:
    """What keeps the next round from taking back what one round adds to the model."""
    noise = config.noise.kind
    if config.sketch.controller != "fixed":
        yield ConfigurationError(
            "sketch.controller",
            f"value {config.sketch.controller!r} with {noise} noise: in a sketch of another size "
            "or other hashes it is another noise, and does not cancel",
            "fixed",
            "fixed",
        )
    reasons = {
        "clipping": "a clip that changes takes the noise of the round before for another clip",
        "powersgd": "the noise of factors is multiplied, and does not cancel",
        "denoise": "the filter cuts noise off in one round that comes back in the next",
    }
    for name, reason in reasons.items():
        if getattr(config, name) is not None:
            problem = f"given with {noise} noise: {reason}"
            yield ConfigurationError(name, problem, "left out", Remedy.LEFT_OUT)
    if config.server.optimizer != "sgd":
        yield ConfigurationError(
            "server.optimizer",
            f"value {config.server.optimizer!r} with {noise} noise: rates of coordinates that "
            "change from round to round do not let it cancel",
            "sgd, with or without momentum",
            "sgd",
        )


def _too_far_apart(config: RunConfig) -> Iterator[ConfigurationError]:
    """A distance between a client's rounds that its cohorts do not keep."""
    most, apart = _most_apart(config), _apart(config)
    if apart is not None and apart > most:
        yield ConfigurationError(
            "noise.apart",
            f"value {apart}",
            f"at most {most}, as cohorts of {config.cohort.size} take turns among "
            f"{config.task.population} clients",
            most,
        )


def _apart(config: RunConfig) -> int | None:
    return None if isinstance(config.noise, IndependentTable) else config.noise.apart


def _named(config: RunConfig) -> Seats:
    """The seats of a named committee; none of any other."""
    scheme = config.scheme
    if isinstance(scheme, OneShotTable) and isinstance(scheme.committee, NamedTable):
        return Seats(scheme.committee.size, scheme.committee.away)
    return Seats(0, 0)


def _most_apart(config: RunConfig) -> int:
    return max(1, config.task.population // config.cohort.size)
