"""A campaign on disk: one file, replaced whole, from which an interrupted campaign goes on."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from simulations.common.failures import kept_so_far
from simulations.common.files import write_whole
from simulations.common.provenance import provenance
from simulations.threats.faults.campaign import Campaign, run_campaign

RESULT: Final = "faults.json"
EVERY: Final = 100
"""Schedules between two writings of the file."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a campaign is about; schedules of one question add up."""

    protocols: tuple[str, ...]
    play: tuple[str, ...]
    seed: int
    rate: float
    first: int


class OtherCampaignError(ValueError):
    """A folder holds another campaign, or one of another version of this project."""


def run_kept(
    question: Question, schedules: int, folder: Path | None, progress: Callable[[int], None]
) -> Campaign:
    """Run a campaign, or the rest of one; keep it if there is a folder."""
    path = None if folder is None else folder / RESULT
    campaign, done = _found(path, question)
    progress(done)
    while done < schedules:
        some = min(EVERY, schedules - done)
        run_campaign(
            some,
            question.seed,
            question.rate,
            lambda: progress(1),
            names=question.play,
            protocols=question.protocols,
            first=question.first + done,
            campaign=campaign,
        )
        done += some
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            with kept_so_far():
                write_whole(path, json.dumps(_written(question, done, campaign), indent=1) + "\n")
    return campaign


def figures(campaign: Campaign) -> dict[str, Any]:
    """What a campaign found, as JSON has it."""
    return {
        "outcomes": dict(campaign.outcomes),
        "faults": dict(campaign.faults),
        "refusals": dict(campaign.refusals),
        "failures": {str(number): what for number, what in campaign.failures.items()},
        "behaviours": {name: dict(ends) for name, ends in campaign.behaviours.items()},
    }


def _written(question: Question, done: int, campaign: Campaign) -> dict[str, Any]:
    made = asdict(provenance())
    return {"question": asdict(question), "schedules": done, **figures(campaign), "made by": made}


def _found(path: Path | None, question: Question) -> tuple[Campaign, int]:
    """What was kept of this campaign, and how many schedules that is."""
    if path is None or not path.exists():
        return Campaign(), 0
    kept = json.loads(path.read_text())
    # Lists and tuples are the same in JSON.
    if kept["question"] != json.loads(json.dumps(asdict(question))):
        raise OtherCampaignError(f"{path} is of another campaign: {kept['question']}")
    if kept["made by"]["source"] != provenance().source:
        raise OtherCampaignError(f"{path} was made by other sources: {kept['made by']['commit']}")
    campaign = Campaign(
        behaviours={name: Counter(ends) for name, ends in kept["behaviours"].items()},
        refusals=Counter(kept["refusals"]),
        faults=Counter(kept["faults"]),
        failures={int(number): what for number, what in kept["failures"].items()},
    )
    return campaign, kept["schedules"]
