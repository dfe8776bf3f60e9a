"""The campaign: schedules, each with one hostile behaviour, and what became of them.

On disk it is one file, replaced whole, from which an interrupted campaign goes on.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from simulations.common.failures import kept_so_far
from simulations.common.files import write_whole
from simulations.common.provenance import provenance
from simulations.threats.faults.behaviours import Play, Tally, Verdict, no_hang
from simulations.threats.faults.encoded import play_encoded
from simulations.threats.faults.lies import LIES
from simulations.threats.faults.one_shot import servers, staged, validated
from simulations.threats.faults.one_shot.answers import MEMBER_LIES
from simulations.threats.faults.one_shot.lies import CLIENT_LIES
from simulations.threats.faults.rounds import play_liar, play_wire
from simulations.threats.faults.servers import SERVERS, play_server

FAMILIES: Mapping[str, Mapping[str, Mapping[str, Play]]] = {
    "pairwise": {
        "wire": {"wire: faults only": play_wire},
        "encoded": {"wire: updates encoded, masked, decoded": play_encoded},
        "client": {f"client: {name}": partial(play_liar, lie) for name, lie in LIES.items()},
        "server": {f"server: {name}": partial(play_server, kind) for name, kind in SERVERS.items()},
    },
    "one-shot": {
        "wire": {
            "one-shot wire: faults only": staged.Cast.play_wire,
            "one-shot wire: parties leave": staged.Cast.play_leavers,
        },
        "encoded": {"one-shot wire: updates encoded, masked, decoded": staged.play_encoded},
        "client": {
            f"one-shot client: {name}": partial(staged.Cast.play_liar, lie)
            for name, lie in CLIENT_LIES.items()
        },
        "member": {
            f"one-shot member: {name}": partial(staged.Cast.play_lying_member, lie)
            for name, lie in MEMBER_LIES.items()
        },
        "server": {
            f"one-shot server: {name}": partial(servers.play_server, story)
            for name, story in servers.SERVERS.items()
        },
    },
    "validated": {
        "wire": {
            "validated wire: faults only": validated.Cast.play_wire,
            "validated wire: parties leave": validated.Cast.play_leavers,
        },
        "client": {
            f"validated client: {name}": partial(validated.Cast.play_liar, lie)
            for name, lie in validated.CLIENT_LIES.items()
        },
        "member": {
            f"validated member: {name}": partial(validated.Cast.play_lying_member, lie)
            for name, lie in validated.MEMBER_LIES.items()
        },
    },
}
"""Every hostile behaviour by its name in reports, in families, for each protocol."""

PROTOCOLS: tuple[str, ...] = tuple(FAMILIES)

PLAYS: Mapping[str, Play] = {
    name: play
    for families in FAMILIES.values()
    for family in families.values()
    for name, play in family.items()
}


@dataclass(slots=True)
class Campaign:
    """What a campaign found."""

    # Schedules by how they ended, for each behaviour.
    behaviours: dict[str, Counter[str]] = field(default_factory=dict)
    refusals: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    # Numbers of schedules that broke a promise, with the behaviour and what happened.
    failures: dict[int, str] = field(default_factory=dict)

    @property
    def outcomes(self) -> Counter[str]:
        """Schedules by how they ended, over all behaviours."""
        return sum(self.behaviours.values(), Counter())


def behaviours_named(names: Sequence[str], protocols: Sequence[str] = PROTOCOLS) -> tuple[str, ...]:
    """The protocols' behaviours of these names or families; all of them for no name at all."""
    families: dict[str, list[str]] = {}
    for protocol in protocols:
        for family, plays in FAMILIES[protocol].items():
            families.setdefault(family, []).extend(plays)
    every = [name for plays in families.values() for name in plays]
    chosen: list[str] = []
    for name in names or families:
        if name not in families and name not in every:
            known = ", ".join(families)
            raise ValueError(f"no behaviour or family {name!r}; families: {known}")
        chosen += families.get(name, [name])
    return tuple(dict.fromkeys(chosen))


def run_campaign(
    schedules: int,
    seed: int,
    rate: float,
    progress: Callable[[], None] = lambda: None,
    *,
    names: Sequence[str] = (),
    protocols: Sequence[str] = PROTOCOLS,
    first: int = 0,
    campaign: Campaign | None = None,
) -> Campaign:
    """Run schedules first .. first + schedules - 1, the behaviours taking turns."""
    campaign = campaign or Campaign()
    chosen = behaviours_named(names, protocols)
    for number in range(first, first + schedules):
        run_schedule(number, seed, rate, campaign, chosen[number % len(chosen)])
        progress()
    return campaign


def run_schedule(number: int, seed: int, rate: float, campaign: Campaign, name: str) -> str:
    """Run one schedule and enter it; returns how it ended."""
    tally = Tally()
    try:
        with no_hang():
            verdict = PLAYS[name](np.random.default_rng([seed, number]), number, rate, tally)
    except Exception as error:
        # Whatever comes out here is a finding: say what it was and go on.
        verdict = Verdict("untyped error", f"{type(error).__name__}: {error}")
    campaign.behaviours.setdefault(name, Counter())[verdict.outcome] += 1
    campaign.refusals.update(tally.refusals)
    campaign.faults.update(tally.faults)
    if verdict.problem is not None:
        campaign.failures[number] = f"{name}: {verdict.problem}"
    return verdict.outcome


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
