"""Who else is in the cohort: clients of the server's (A6), or the same ones as before (A10)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from dp import BinomialRelease
from protocol import ClientPolicy, PolicyError
from protocol.planning.policies import client_policy
from simulations.audits.base import (
    Figures,
    derived_seed,
    identities_of,
    public_keys,
)
from simulations.audits.paths import WholePath
from simulations.threats.attack import Attack, Effort, Findings, both, either, refusal
from simulations.threats.rounds.reduced_noise import noise_left_figures
from simulations.threats.rounds.released import (
    GOAL,
    LENGTH,
    SMALL,
    BareRounds,
    Differencing,
    allowed_accuracy,
    epsilon_of,
    guessing_rate,
    play,
    smallest_difference,
)
from simulations.threats.rounds.sybils import (
    SYBIL_SETTINGS,
    SYBILS,
    SybilCohort,
    opened_round,
    scores_of_victim,
    unopened_noise,
)

_JOINED: Final = "joined"

# -- A6 ---------------------------------------------------------------------------------------


def sybils(effort: Effort, seed: int) -> Findings:
    """A6: fill up the cohort with clients of the server's."""
    crowd = SybilCohort.draw(seed)
    policy = client_policy(SYBIL_SETTINGS.plan, LENGTH)
    answers = _answers(crowd, policy, seed)
    trials = effort.choose(1500, 20_000)
    honest = crowd.setup.events(SYBILS + 1)
    allowed = allowed_accuracy(honest.server)
    worlds = np.random.default_rng(derived_seed(seed, "worlds")).integers(0, 2, trials)
    # A client that refuses tells nothing, whatever its update: all scores are alike.
    joined = sum(answer == _JOINED for answer in answers.values())
    silent = guessing_rate(np.zeros(trials), worlds, 0.5, allowed)
    rounds = effort.choose(3, 30)
    exact = sum(crowd.recovered(derived_seed(seed, "round", i)) for i in range(rounds))
    scores, middle = scores_of_victim(crowd, worlds, seed)
    twin = guessing_rate(scores, worlds, middle, allowed)
    full = _refusal(crowd.refuses(crowd.setup.context.cohort, policy))
    (beyond, charged), (less, all_coins) = _noise_left(effort, derived_seed(seed, "exact"))
    told: Figures = {
        "refused_with": "; ".join(f"{who}: {how}" for who, how in answers.items()),
        "registered Sybils, a full cohort": full,
        "accounted_epsilon": epsilon_of(honest.server, GOAL.delta),
        "own_noise_epsilon": epsilon_of(honest.sybil, GOAL.delta),
        "delta": GOAL.delta,
        "own_noise_accuracy": allowed_accuracy(honest.sybil),
        **charged,
    }
    recovered = {"uploads_recovered": exact, "real_rounds": rounds}
    return Findings(
        either(silent, joined > 0 or beyond, **told),
        both(twin, exact == rounds and less, **all_coins, **recovered),
    )


def _noise_left(effort: Effort, seed: int) -> list[tuple[bool, Figures]]:
    """What hides the victim of a round with exact noise and dropouts.

    Held against what is charged for it, and against all coins: whether the Sybils tell more than
    the event allows, how the noise compares, and what the event would print.
    """
    setup = opened_round(effort.choose(20_000, 400_000), seed)
    noise, survivors = unopened_noise(setup, seed)
    event = setup.events(survivors).sybil
    if not isinstance(event, BinomialRelease):
        raise TypeError(f"a round without coins is accounted as {event}")
    names = ("accuracy", "chance", "claimed_coins", "variance_ratio", "variance_tolerance")
    compared: list[tuple[bool, Figures]] = []
    for each in (event, replace(event, coins=int(setup.noise_left(survivors).amount))):
        found = noise_left_figures(noise, each, derived_seed(seed, "worlds"))
        figures: Figures = {f"exact_noise_{name}": found[name] for name in names}
        figures["exact_noise_epsilon"] = epsilon_of(each, GOAL.delta)
        compared.append((bool(found["succeeded"]), figures))
    return compared


def _answers(crowd: SybilCohort, policy: ClientPolicy, seed: int) -> dict[str, str]:
    """How the victim answers where a registry or a policy protects it."""
    known = [crowd.victim.public, *public_keys(identities_of(seed, SYBILS, "registered"))]
    pair = SybilCohort.draw(seed, sybils=1)
    everybody = crowd.setup.context.cohort
    wary = replace(policy, registry_colluders=SYBILS)
    return {
        "strangers": _refusal(crowd.refuses(known, policy)),
        "registered Sybils, a cohort of two": _refusal(pair.refuses(everybody, policy)),
        "registered Sybils, a policy that expects them": _refusal(crowd.refuses(everybody, wary)),
    }


def _refusal(error: PolicyError | None) -> str:
    return f"{refusal(error)} ({error.parameter})" if error else _JOINED


# -- A10 --------------------------------------------------------------------------------------


def differencing(effort: Effort, seed: int) -> Findings:
    """A10: compare the sums of rounds with almost the same clients."""
    pairs, differences = effort.choose(200, 5_000), effort.choose(10, 200)
    found = []
    for path in (WholePath(SMALL, seed), BareRounds(SMALL, seed)):
        game = Differencing.draw(path, seed)
        middle = float(game.integers @ game.integers) / 2.0
        exact = sum(game.is_exact(pairs + number) for number in range(differences))
        found.append(
            {
                **play(path, game.score, middle, pairs, derived_seed(seed, "worlds")),
                "smallest_difference_set": smallest_difference(game.survivors()),
                "exact_updates": exact,
                "of_differences": differences,
            }
        )
    real, twin = found
    return Findings(
        either(real, real["exact_updates"] != 0),
        both(twin, twin["exact_updates"] == twin["of_differences"]),
    )


ATTACKS: Final = (
    Attack(
        id="A6",
        promise="P9",
        name="Sybil cohort",
        title="A client refuses cohorts of strangers, of too few, or of too many colluders",
        says="fills the cohort with its own clients around one target; has them reveal their "
        "shares of its noise seeds",
        stopped_by="not by cryptography: the client's registry and cohort policy; if the operator "
        "registers Sybils, only the client's own coins whose seed was never shared, and no more "
        "is charged",
        run=sybils,
    ),
    Attack(
        id="A10",
        promise="P6",
        name="differences of sums",
        title="Sums over sets that differ in one client do not give its update",
        says="subtracts sums over sets that differ in one client",
        stopped_by="noise in every sum; such sets are not prevented, the smallest difference is "
        "reported",
        run=differencing,
    ),
)
