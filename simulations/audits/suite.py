"""All privacy audits, in seconds for tests and in minutes for reports."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from dp.mechanisms import MechanismName
from simulations.audits.allocation import audit_allocation
from simulations.audits.base import Audit, Check, Effort, derived_seed
from simulations.audits.canaries import audit_canaries
from simulations.audits.exact import audit_accountants, audit_randomiser
from simulations.audits.released_noise import LAWS, audit_rounds
from simulations.audits.releases import audit_coins, audit_path
from simulations.audits.sensitivity import audit_clip
from simulations.audits.whole_runs import audit_model_noise, audit_runs


def audits(effort: Effort, seed: int) -> list[Audit]:
    """Return every audit, none of which has run."""
    # Rounds whose noise is tested, each a vector of samples, and their coordinates.
    length, rounds = effort.choose(20_000, 100_000), effort.choose(2, 10)
    # Runs in each of two worlds: of plain coins or rounds, and of many rounds.
    runs, whole_runs = effort.choose(100_000, 1_000_000), effort.choose(50_000, 1_000_000)
    canaries = effort.choose(1_000, 1_500)

    def own(name: str) -> int:
        return derived_seed(seed, name)

    found = [
        audit_accountants(),
        audit_randomiser(),
        *(law.audit(length, rounds, own(law.label)) for law in LAWS),
        audit_rounds(length, own("rounds")),
        audit_model_noise(length, own("model")),
        audit_clip(8 * rounds, own("sensitivity")),
        audit_coins(runs, own("coins")),
        *(audit_path(runs, own(f"path, {each}"), each) for each in get_args(MechanismName)),
        audit_allocation(runs, own("allocation")),
        audit_runs(whole_runs, own("whole runs")),
        audit_canaries(canaries, own("canaries"), sketched=False),
        audit_canaries(canaries, own("sketch")),
    ]
    if effort is Effort.FULL:
        found.append(audit_canaries(1_000, own("real canaries"), real=True))
    return found


def run_audits(effort: Effort, seed: int) -> Iterator[Check]:
    """Run every audit and yield each check as soon as it is done.

    Args:
        effort: how much of everything.
        seed: fixes all randomness: the same seed gives the same checks.
    """
    for audit in audits(effort, seed):
        yield audit.check()
