"""Where figures come from: what a campaign records of it, and how its page begins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simulations.common.provenance import provenance


def facts() -> dict[str, Any]:
    """Return commit, source, machine and Python, as JSON values."""
    made = provenance()
    return {
        "commit": made.commit,
        "source": made.source,
        "machine": made.machine,
        "python": made.versions["python"],
    }


def paragraph(figures: Mapping[str, Any], name: str, quick: bool) -> str:
    """Return the command that makes the figures of a campaign, and on what they were made."""
    machine, options = figures["machine"], "--quick" if quick else "--data-dir DATA"
    return (
        f"```console\nveilsum reproduce {name} {options} --seed {figures['seed']}\n```\n\n"
        f"Commit {figures['commit']} (source {figures['source']}), {machine['system']}, "
        f"{machine['processor']}, {machine['cores']} cores, Python {figures['python']}. "
        f"{figures['seconds'] / 60.0:.1f} minutes of processor time. Noise is fresh in every run; "
        "all else follows from the seed.\n"
    )
