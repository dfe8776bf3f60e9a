"""Autotuned sketches behind real secure sums, to the end: `veilsum reproduce secure-autotune`.

Adapt Norm is driven by nothing but secure sums of noisy sketches, with real messages, and clients
are lost in every round. Beside it runs a trusted server of the same seeds, whose noise is as
strong.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from statistics import fmean
from typing import Any, Final

from matplotlib.figure import Figure

from dp import Adjacency
from protocol.planning.configuration import NamedTable, OneShotTable, PairwiseTable
from simulations.campaigns.campaign import Campaign
from simulations.campaigns.claims import OURS, Claim, fact, gain, half_width, within
from simulations.campaigns.federated import Ran, data_of, run_folder
from simulations.campaigns.plots import Style, curve, dress, panels
from simulations.campaigns.render import Column, Part, percent, table
from simulations.campaigns.rows import Figures, Row
from simulations.campaigns.store import Cell
from simulations.campaigns.study import Study
from simulations.campaigns.wire import deployed
from simulations.common.figures import BLUE, GREEN, GREY, ORANGE
from simulations.learning.configuration import RunConfig
from simulations.learning.run.experiment import run_experiment
from simulations.learning.run.folder import RunFolder
from simulations.learning.run.overrides import changed
from simulations.reports.account.ledger import REPLAY_ROOM, account_ledger
from simulations.reproduce.autotune.findings import harmonic, log_ratios
from simulations.reproduce.autotune.plan import EMBEDDED, base_of, point_config
from simulations.reproduce.autotune.plan import Plan as Autotune
from simulations.reproduce.autotune.training import course
from sketch import SketchSpec

FREE: Final = "trusted server, no compression"
TRUSTED: Final = "trusted server"
SECURE: Final = ("pairwise", "one-shot")
STYLES: Final = {
    FREE: (GREY, ":"),
    TRUSTED: (BLUE, "-"),
    "pairwise": (ORANGE, "-"),
    "one-shot": (GREEN, "--"),
}

COMMITTEE: Final = NamedTable(size=10, corrupt=1, away=2)  # opens the one-shot sums

SLACK: Final = 0.01  # of accuracy: a loss that is surely smaller is none
APART: Final = 0.1  # of rates, relative: as far as noise alone may move them


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A task of `veilsum run`, and what is changed in it."""

    config: str = "autotune-writers"  # an example that comes with the program, or a TOML file
    noise: float = 4.0  # noise multiplier
    server_rate: float = 0.1  # learning rate of the server
    gamma: float = 0.1  # of Adapt Norm
    dropout: float = 0.05  # share of a cohort that is lost in every round, at random stages
    rounds: int = 300  # of each run
    seeds: int = 3  # of data split, model, cohorts, batches; all noise but the server's is fresh

    def configs(self, seed: int) -> dict[str, RunConfig]:
        """Return all arms at a seed."""
        task = Autotune(
            config=self.config,
            noise=(self.noise,),
            server_rates=(self.server_rate,),
            rates=(),
            gammas=(self.gamma,),
            rounds=self.rounds,
        )
        alike = [("faults.dropout", self.dropout), ("engine.workers", 1)]
        base = changed(base_of(task), [*alike, ("engine.aggregator", "central")])
        plain, tuned = (point_config(task, base, self.noise, arm, seed) for arm in task.arms())
        real = changed(tuned, [("engine.aggregator", "real")])
        schemes = (PairwiseTable(), OneShotTable(committee=COMMITTEE))
        secure = (real.model_copy(update={"scheme": scheme}) for scheme in schemes)
        return {FREE: plain, TRUSTED: tuned, **dict(zip(SECURE, secure, strict=True))}


def run(name: str, config: RunConfig) -> dict[str, Any]:
    """Run an arm in a folder that stays, and read its ledger again with independent code."""
    with run_folder(config, name) as folder, RunFolder(folder, config) as opened:
        records = run_experiment(config, data_of(config), opened).records
        # A trusted server keeps none.
        read = opened.ledger.exists()
        account = account_ledger(opened.ledger, None, Adjacency.ZERO_OUT) if read else None
    return {
        **course(Ran(records, diverged=False)),
        "dimension": records[-1]["dimension"],
        "rounds": len(records),
        "lost": [r["cohort"] - r["survivors"] for r in records],
        "bytes": fmean(r["bytes_per_client"] for r in records),
        "epsilon": records[-1]["epsilons"]["guaranteed"],
        "ledger": account and {"epsilon": account.epsilon, "releases": account.entries},
        "seconds": fmean(r["seconds"] for r in records),
    }


def figures_of(study: Study[Plan]) -> dict[str, Any]:
    """Run every arm at every seed."""
    configs = {seed: study.plan.configs(seed) for seed in study.seeds}
    usual = configs[study.seed]
    for seed, arm in product(study.seeds, usual):
        configs[seed][arm].check()
    config = usual[FREE]
    data_of(config)

    def cell(arm: str, seed: int) -> Cell:
        name = f"{arm.replace(', ', '-').replace(' ', '-')}-{seed}"
        return Cell(name, run, (name, configs[seed][arm]))

    runs = dict(zip(usual, study.by_arm(usual, cell), strict=True))
    dimension = runs[FREE][0]["dimension"]
    identity = SketchSpec.identity(dimension)
    whole = {kind: deployed(usual[kind], identity).bytes_per_client for kind in SECURE}
    return {
        "seeds": list(study.seeds),
        "task": config.task.model_dump(exclude_none=True),
        "cohort": config.cohort.size,
        "dimension": dimension,
        "participations": config.participations,
        "results": [_result(arm, found, whole.get(arm)) for arm, found in runs.items()],
        "runs": runs,
    }


def _result(arm: str, runs: list[Row], whole: float | None) -> dict[str, Any]:
    accuracies = [run["accuracy"] for run in runs]
    sent = fmean(float(run["bytes"]) for run in runs)
    return {
        "arm": arm,
        "accuracy": fmean(accuracies),
        "half_width": half_width(accuracies),
        **{key: harmonic([run[key] for run in runs]) for key in ("rate", "late_rate")},
        "bytes": None if whole is None else sent,
        "bytes_without": whole,
        "byte_rate": None if whole is None else whole / sent,
        "rounds": min(run["rounds"] for run in runs),
        "lost": fmean(fmean(run["lost"]) for run in runs),
        "epsilon": max(run["epsilon"] for run in runs),
        "recounted": max(run["ledger"]["epsilon"] for run in runs) if runs[0]["ledger"] else None,
        "seconds": fmean(run["seconds"] for run in runs),
    }


COLUMNS: Final = (
    Column("", "arm"),
    percent("accuracy, %", "accuracy", "half_width"),
    Column("rate of the vectors", "rate", ".1f"),
    Column("second half", "late_rate", ".1f"),
    Column("kB, all messages", "bytes", ".1f", 1e-3),
    Column("without compression", "bytes_without", ".1f", 1e-3),
    Column("rate of the bytes", "byte_rate", ".1f"),
    Column("rounds", "rounds"),
    Column("lost a round", "lost", ".1f"),
    Column("seconds a round", "seconds", ".2f"),
)

PRIVACY: Final = (
    Column("", "arm"),
    Column("guaranteed", "epsilon", ".4f"),
    Column("its ledger, read by independent code", "recounted", ".4f"),
)


def _parts(figures: Figures) -> Iterator[Part]:
    yield table("Runs", COLUMNS, figures["results"], brief=True)
    yield table("Epsilon of the whole run, largest of the seeds", PRIVACY, figures["results"])


def claims(figures: Figures) -> Iterator[Claim]:
    """Yield what secure sums change, and what compression costs."""
    runs: Mapping[str, list[Row]] = figures["runs"]

    def of(arm: str, key: str = "accuracy") -> list[float]:
        return [float(run[key]) for run in runs[arm]]

    for arm in SECURE:
        said = f"{arm}: the controller chooses the sizes that it chooses behind a trusted server"
        ratios = log_ratios(of(arm, "rate"), of(TRUSTED, "rate"))
        seen, verdict = "log of the ratio of rates, same seeds", within(ratios, APART)
        yield Claim.about(said, OURS, ratios, verdict, seen, tolerance=APART)
    for arm, other in (*((arm, TRUSTED) for arm in SECURE), (TRUSTED, FREE)):
        said = f"{arm}: as accurate as {other}"
        yield Claim.more(said, OURS, gain(of(arm), of(other)), "same seeds", margin=-SLACK)
    for arm in SECURE:
        inside = all(run["ledger"]["epsilon"] <= REPLAY_ROOM * run["epsilon"] for run in runs[arm])
        whole = all(run["ledger"]["releases"] == run["rounds"] for run in runs[arm])
        worst = max(run["ledger"]["epsilon"] for run in runs[arm])
        yield Claim(
            f"{arm}: every round is in the ledger, which an independent reader finds within its "
            "guarantee",
            OURS,
            fact(inside and whole),
            f"{worst:.4f} recounted, {max(of(arm, 'epsilon')):.4f} guaranteed",
        )


def plot(figures: Figures) -> Figure:
    """Plot sizes and accuracies round by round, of the first seed."""
    figure, [[left, right]] = panels(1, 2, 13, 4.5)
    for arm, (colour, line) in STYLES.items():
        run = figures["runs"][arm][0]
        look = Style(arm, colour, "", line)
        sizes = [{"round": at, "size": size} for at, size in enumerate(run["sizes"], 1)]
        curve(left, sizes, "round", "size", look)
        tests = [{"round": at, "accuracy": accuracy} for at, accuracy in run["tests"]]
        curve(right, tests, "round", "accuracy", look)
    dress(left, "round", "numbers that a client sends", log="y")
    dress(right, "round", "test accuracy", percents=True)
    return figure


PRESETS: Final = {
    "usual": Plan(),
    "quick": Plan(config=EMBEDDED, noise=1.0, server_rate=1.0, dropout=0.1, rounds=6, seeds=1),
}

CAMPAIGN = Campaign(
    name="secure-autotune",
    title="Autotuned sketches behind secure sums, with real messages and lost clients",
    presets=PRESETS,
    figures=figures_of,
    claims=claims,
    parts=_parts,
    plots={"rounds": plot},
)
