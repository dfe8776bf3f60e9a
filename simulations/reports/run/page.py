"""The page of one run or several: what was run, what came of it, and where error and time went."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import tomli_w

from protocol.planning.configuration import CONTROLLERS
from simulations.common.files import write_whole
from simulations.common.pages import Chart, render
from simulations.common.tables import readable
from simulations.learning.insecure import protects
from simulations.learning.run.view import hidden_words
from simulations.reports.guessing import meaning
from simulations.reports.run.charts import charts_of, mean
from simulations.reports.run.comparison import comparison_charts, comparison_tables, outcomes
from simulations.reports.run.folders import Run
from simulations.reports.run.plots import DASH
from simulations.reports.verdict import Verdict, judge

SUMS = {
    "real": "the real protocol, with all its cryptography",
    "ideal": "the ideal functionality: the same integers in the same field, no cryptography",
    "central": "a trusted server that adds Gaussian noise",
    "local": "reports that every client makes private on its own",
    "plain": "a server that sees every update: no clip, no noise",
}


@dataclass(frozen=True, slots=True)
class Section:
    """A run as the page shows it."""

    anchor: str  # its place on the page
    run: Run
    headline: str  # what came of it, in a sentence
    verdict: Verdict  # on the run's settings
    meaning: str  # of its epsilon, in a sentence; empty if it has none
    notes: tuple[str, ...]  # what a reader should not miss
    setting: tuple[tuple[str, str], ...]  # what was asked for, by name
    machine: tuple[tuple[str, str], ...]  # where it ran, and on what
    charts: tuple[Chart, ...]  # its plots
    config: str  # the whole configuration, as TOML
    ledger: bool  # whether its releases are on a ledger
    parts: frozenset[str]  # which explanations of the error apply


def render_runs(runs: Sequence[Run], title: str) -> str:
    """Return the page of at least one run, as HTML."""
    sections = [_section(run, place) for place, run in enumerate(runs, 1)]
    several = len(runs) > 1
    return render(
        "simulations.reports.run",
        title=title,
        warning=_warning(runs),
        sections=sections,
        tables=comparison_tables(runs) if several else [],
        charts=comparison_charts(runs) if several else [],
    )


def write_page(runs: Sequence[Run], title: str, path: Path) -> Path:
    """Write the page to a file; folders are made as needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, render_runs(runs, title))
    return path


def _warning(runs: Sequence[Run]) -> str | None:
    """What stands above all else: which of the runs protect nobody."""
    named = {run.name: run.config.engine.insecure_seed for run in runs}
    insecure = {name: seed for name, seed in named.items() if seed is not None}
    if not insecure:
        return None
    if len(runs) == 1:
        return f"This run protects {protects(*insecure.values())}."
    return (
        f"These runs protect nobody: {', '.join(insecure)}. All their secrets follow from an "
        "insecure_seed, which anybody may know."
    )


def _section(run: Run, place: int) -> Section:
    return Section(
        anchor=f"run-{place}",
        run=run,
        headline=_headline(run),
        verdict=judge(run.config, run.records),
        meaning=meaning(run.config, run.records[-1]["epsilons"]) if run.records else "",
        notes=tuple(_notes(run)),
        setting=tuple((name, value) for name, value in _setting(run) if value),
        machine=tuple((name, value) for name, value in _machine(run) if value),
        charts=tuple(charts_of(run, place)),
        config=tomli_w.dumps(run.config.model_dump(exclude_none=True)),
        ledger=(run.path / "ledger.jsonl").exists(),
        parts=frozenset(key for record in run.records for key in record.get("error") or {}),
    )


def _headline(run: Run) -> str:
    found = outcomes(run)
    if not run.records:
        return f"No round of {run.config.rounds} is finished."
    delta = _unbroken(run.config.privacy.delta)
    said = f"{found['rounds']} rounds: {found['last']} of the test examples correct"
    if run.config.engine.insecure_seed is not None:
        said += (
            f", nobody protected: the noise is that of epsilon {found['guaranteed']} at delta "
            f"{delta}, and anybody can compute it"
        )
    elif found["spent, server"] not in ("infinite", "-"):
        said += (
            f", epsilon {found['guaranteed']} guaranteed against the server at delta {delta} "
            f"({found['spent, server']} spent so far)"
        )
    elif found["spent, outsider"] not in ("infinite", "-"):
        said += (
            f", epsilon {found['guaranteed']} guaranteed at delta {delta} against whoever sees "
            f"only the released models ({found['spent, outsider']} spent so far), and none "
            "against the server"
        )
    else:
        said += ", without privacy"
    each = mean([record["bytes_per_client"] for record in run.records]) / 1000
    of_it = f", {found['vector']} of them its vector" if found["protocol"] != DASH else ""
    return f"{said}, {readable(each)} kB for each client and round{of_it}."


def _notes(run: Run) -> Iterable[str]:
    done, planned = len(run.records), run.config.rounds
    if done < planned:
        yield (
            f"Stopped after {done} of {planned} rounds, or still in progress. The command that "
            "began a run continues it."
        )
    if (seed := run.config.engine.insecure_seed) is not None:
        yield (
            f"This run protects {protects(seed)}. Every epsilon on this page is what the same run "
            "would have with secrets that nobody knows."
        )
    if run.config.engine.aggregator == "ideal":
        yield (
            "The sum came from the ideal functionality: it equals that of the protocol bit for "
            "bit, and the bytes are what it would send if clients dropped out at their upload; but "
            "nobody was protected."
        )
    if run.records and (adjacency := run.records[-1]["epsilons"].get("adjacency")):
        yield (
            "'Spent' is an estimate, for the client that took part most often; only the guarantee "
            f"is a bound. Neighbours: {adjacency}."
        )
    if run.records and (hidden := hidden_words(run.records[-1]["epsilons"])):
        yield f"{hidden.removeprefix('. ')}, this page among them."


def _setting(run: Run) -> Iterable[tuple[str, str]]:
    config = run.config
    task, cohort, privacy = config.task, config.cohort, config.privacy
    dimension = f", {run.records[-1]['dimension']:,} parameters" if run.records else ""
    yield "data", f"{task.data}, {task.clients}"
    yield "model", f"{task.model}{dimension}"
    yield "clients", f"{task.population:,}, {cohort.size:,} in a round"
    yield "rounds", f"{config.rounds}, {config.participations} at most for a client"
    yield "sum", SUMS[config.engine.aggregator]
    if config.engine.aggregator == "plain":
        return
    if privacy.epsilon is not None:
        yield "goal", f"epsilon {privacy.epsilon:g}, delta {_unbroken(privacy.delta)}"
    else:
        yield (
            "goal",
            f"noise multiplier {privacy.noise_multiplier:g}, delta {_unbroken(privacy.delta)}",
        )
    yield "clip", f"{privacy.clip_l2:g}"
    yield "tolerated", f"{cohort.tolerated_dropouts} lost, {cohort.tolerated_colluders} colluding"
    yield "server", "may deviate" if config.scheme.mode == "active" else "follows the protocol"
    yield "compression", _compression(run)
    yield "lost on purpose", f"{config.lost_per_round} in every round"


def _compression(run: Run) -> str:
    config = run.config
    if config.powersgd is not None:
        return f"PowerSGD, rank {config.powersgd.rank}"
    if config.local_dp is not None:
        return f"local reports by {config.local_dp.algorithm}"
    controller = CONTROLLERS[config.sketch.controller].__name__
    return f"sketch, sized by {controller}"


def _machine(run: Run) -> Iterable[tuple[str, str]]:
    kept = run.environment
    for name in ("system", "processor", "cores"):
        yield name, str(kept.get(name) or "")
    versions = {"python": kept.get("python", ""), **kept.get("packages", {})}
    yield "versions", ", ".join(f"{name} {made}" for name, made in versions.items() if made)
    yield "commit", str(kept.get("commit") or "")
    yield "source hash", str(kept.get("source") or "")
    if run.records:
        yield "time", f"{readable(round(sum(r['seconds'] for r in run.records), 1))} s of rounds"
    yield "folder", str(run.path)


def _unbroken(value: float) -> str:
    """A number that no line breaks in: 1e-05 with a hyphen that holds."""
    return f"{value:g}".replace("-", "\u2011")
