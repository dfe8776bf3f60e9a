"""All privacy audits, in a quick size for tests and a full one for reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from simulations.audits.base import Check, derived_seed
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

Progress: TypeAlias = Callable[[str, int, int], None]
"""Told the id of a check before it starts, its number counted from 1, and how many there are."""


@dataclass(frozen=True, slots=True)
class AuditSize:
    """How much of everything.

    Attributes:
        length: coordinates of a round whose noise is tested.
        rounds: such rounds for each check, each a vector of samples.
        coin_runs: runs of plain coins in each of two worlds.
        path_runs: whole rounds in each of two worlds.
        canaries: clients of the round with canaries, in the ideal functionality.
        real_canaries: likewise with real cryptography; 0 to leave that out.
    """

    length: int
    rounds: int
    coin_runs: int
    path_runs: int
    canaries: int
    real_canaries: int


QUICK: Final = AuditSize(
    length=20_000, rounds=2, coin_runs=100_000, path_runs=300, canaries=1_000, real_canaries=0
)
"""A few seconds on one core."""

FULL: Final = AuditSize(
    length=100_000,
    rounds=10,
    coin_runs=1_000_000,
    path_runs=20_000,
    canaries=1_500,
    real_canaries=1_000,
)
"""Minutes."""


def audits(size: AuditSize, seed: int) -> list[tuple[str, Callable[[], Check]]]:
    """Return every audit as the id of its check, known before it runs, and a call that runs it.

    Args:
        size: how much of everything.
        seed: fixes all randomness.
    """
    length, rounds = size.length, size.rounds

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
        ("privacy-sensitivity", lambda: check_clip(8 * rounds, own("sensitivity"))),
        ("privacy-two-worlds-coins", lambda: check_coins(size.coin_runs, own("coins"))),
        (
            "privacy-two-worlds-path-tenth",
            lambda: check_path(size.path_runs, own("thin"), Mistake.TENTH),
        ),
        (
            "privacy-two-worlds-path-no-clip",
            lambda: check_path(size.path_runs, own("clip"), Mistake.NO_CLIP),
        ),
        (
            "privacy-two-worlds-path-tenth-skellam",
            lambda: check_path(
                size.path_runs, own("thin skellam"), Mistake.TENTH, mechanism="skellam"
            ),
        ),
        (
            "privacy-two-worlds-path-tenth-discrete-gaussian",
            lambda: check_path(
                size.path_runs, own("thin gaussian"), Mistake.TENTH, mechanism="discrete-gaussian"
            ),
        ),
        (
            "privacy-one-run-identity",
            lambda: check_canaries(size.canaries, own("canaries"), sketched=False),
        ),
        ("privacy-one-run-sketch", lambda: check_canaries(size.canaries, own("sketch"))),
    ]
    if size.real_canaries:
        many = size.real_canaries
        found.append(
            (
                "privacy-one-run-real",
                lambda: check_canaries(many, own("real canaries"), real=True),
            )
        )
    return found


def run_audits(size: AuditSize, seed: int, progress: Progress | None = None) -> Iterator[Check]:
    """Run every audit and yield each check as soon as it is done.

    Args:
        size: how much of everything.
        seed: fixes all randomness: the same seed gives the same checks.
        progress: told before each audit.
    """
    planned = audits(size, seed)
    for number, (name, audit) in enumerate(planned, start=1):
        if progress is not None:
            progress(name, number, len(planned))
        yield audit()


def quick_audit(seed: int) -> list[Check]:
    """Run all audits in the quick size: a few seconds.

    Args:
        seed: fixes all randomness.
    """
    return list(run_audits(QUICK, seed))


def full_audit(seed: int, progress: Progress | None = None, size: AuditSize = FULL) -> list[Check]:
    """Run all audits in the full size: minutes.

    Args:
        seed: fixes all randomness.
        progress: told before each audit.
        size: how much of everything.
    """
    return list(run_audits(size, seed, progress))
