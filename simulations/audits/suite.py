"""All privacy audits, in seconds for tests and in minutes for reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from simulations.audits.base import Check, Effort, derived_seed
from simulations.audits.canaries import check_canaries
from simulations.audits.exact import check_accountants, check_randomiser
from simulations.audits.paths import Mistake
from simulations.audits.released_noise import (
    check_clients,
    check_colluders,
    check_colluders_of_real_rounds,
    check_law,
    check_law_of_real_rounds,
    check_removal,
    check_rounds,
)
from simulations.audits.releases import check_coins, check_path
from simulations.audits.sensitivity import check_clip
from simulations.audits.whole_runs import (
    CountMistake,
    RunMistake,
    check_model_noise,
    check_run,
    run_id,
)


def audits(effort: Effort, seed: int) -> list[tuple[str, Callable[[], Check]]]:
    """Return every audit as the id of its check, known before it runs, and a call that runs it.

    Args:
        effort: how much of everything.
        seed: fixes all randomness.
    """
    # Rounds whose noise is tested, each a vector of samples, and their coordinates.
    length, rounds = effort.choose(20_000, 100_000), effort.choose(2, 10)
    # Runs in each of two worlds: of plain coins, and of whole rounds.
    coin_runs, path_runs = effort.choose(100_000, 1_000_000), effort.choose(300, 20_000)
    whole_runs = effort.choose(20_000, 1_000_000)
    canaries = effort.choose(1_000, 1_500)

    def own(name: str) -> int:
        return derived_seed(seed, name)

    found: list[tuple[str, Callable[[], Check]]] = [
        ("privacy-exact-accountants", check_accountants),
        ("privacy-exact-randomiser", check_randomiser),
        ("privacy-noise-law", lambda: check_law(length, rounds, own("law"))),
        ("privacy-noise-law-real", lambda: check_law_of_real_rounds(length, rounds, own("real"))),
        (
            "privacy-noise-skellam-real",
            lambda: check_law_of_real_rounds(length, rounds, own("skellam"), "skellam"),
        ),
        (
            "privacy-noise-discrete-gaussian-real",
            lambda: check_law_of_real_rounds(length, rounds, own("gaussian"), "discrete-gaussian"),
        ),
        ("privacy-noise-removal", lambda: check_removal(length, rounds, own("removal"))),
        ("privacy-noise-colluders", lambda: check_colluders(length, rounds, own("colluders"))),
        (
            "privacy-noise-colluders-real",
            lambda: check_colluders_of_real_rounds(length, rounds, own("colluders, real")),
        ),
        ("privacy-noise-clients", lambda: check_clients(length, rounds, own("clients"))),
        ("privacy-noise-rounds", lambda: check_rounds(length, own("rounds"))),
        ("privacy-noise-model", lambda: check_model_noise(length, own("model"))),
        ("privacy-sensitivity", lambda: check_clip(8 * rounds, own("sensitivity"))),
        ("privacy-two-worlds-coins", lambda: check_coins(coin_runs, own("coins"))),
        (
            "privacy-two-worlds-path-tenth",
            lambda: check_path(path_runs, own("thin"), Mistake.TENTH),
        ),
        (
            "privacy-two-worlds-path-no-clip",
            lambda: check_path(path_runs, own("clip"), Mistake.NO_CLIP),
        ),
        (
            "privacy-two-worlds-path-tenth-skellam",
            lambda: check_path(path_runs, own("thin skellam"), Mistake.TENTH, mechanism="skellam"),
        ),
        (
            "privacy-two-worlds-path-tenth-discrete-gaussian",
            lambda: check_path(
                path_runs, own("thin gaussian"), Mistake.TENTH, mechanism="discrete-gaussian"
            ),
        ),
        *(
            (run_id(mistake), partial(check_run, whole_runs, own("whole runs"), mistake))
            for mistake in (RunMistake.TWICE, RunMistake.OWN_ROUND, *CountMistake)
        ),
        (
            "privacy-one-run-identity",
            lambda: check_canaries(canaries, own("canaries"), sketched=False),
        ),
        ("privacy-one-run-sketch", lambda: check_canaries(canaries, own("sketch"))),
    ]
    if effort is Effort.FULL:
        real = partial(check_canaries, 1_000, own("real canaries"), real=True)
        found.append(("privacy-one-run-real", real))
    return found


def run_audits(effort: Effort, seed: int) -> Iterator[Check]:
    """Run every audit and yield each check as soon as it is done.

    Args:
        effort: how much of everything.
        seed: fixes all randomness: the same seed gives the same checks.
    """
    for _, audit in audits(effort, seed):
        yield audit()
