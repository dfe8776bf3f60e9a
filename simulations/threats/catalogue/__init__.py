"""The attack catalogue: each with its defence and without.

Source: the attacks that papers on secure aggregation and private federated learning describe; which
ones, and what stops them, is in docs/threat-model.md.
"""

from simulations.threats.attack import Attack, Effort, Findings
from simulations.threats.catalogue import (
    aborts,
    capacity,
    cohorts,
    goals,
    holders,
    inversion,
    keys,
    lies,
    mask_generators,
    membership,
    noise,
    noise_seeds,
    old_copies,
    one_shot_answers,
    one_shot_books,
    one_shot_draws,
    one_shot_members,
    one_shot_returns,
    one_shot_run_books,
    one_shot_sets,
    one_shot_terms,
    one_shot_uploads,
    parameters,
    replays,
    rings,
    shared_books,
    thresholds,
    tracebacks,
    uploads,
    views,
)

CATALOGUE: tuple[Attack, ...] = tuple(
    sorted(
        (
            attack
            for topic in (
                *(aborts, capacity, cohorts, inversion, keys, lies, mask_generators, membership),
                *(noise, noise_seeds, parameters, replays, rings, thresholds, uploads, views),
                *(goals, holders, old_copies, shared_books, tracebacks),
                *(
                    one_shot_answers,
                    one_shot_books,
                    one_shot_draws,
                    one_shot_members,
                    one_shot_returns,
                    one_shot_run_books,
                    one_shot_sets,
                    one_shot_terms,
                    one_shot_uploads,
                ),
            )
            for attack in topic.ATTACKS
        ),
        key=lambda attack: int(attack.id[1:]),
    )
)
"""All attacks, by number."""

__all__ = ["CATALOGUE", "Attack", "Effort", "Findings"]
