"""Malicious clients under sums, validated sums and robust rules: `veilsum reproduce attackers`.

Every arm trains at a rate of its own, chosen without attackers on held-out examples. Then a share
of the clients attacks: at the clipping norm, just within the bound of validated sums, and far
beyond it, where those leave them out. Members' noise is an arm where the plan gains by it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from operator import itemgetter
from statistics import fmean
from typing import Any, Final

from matplotlib.figure import Figure

from protocol.checks import of_kind
from protocol.planning.configuration import parse
from protocol.planning.deployment import plan_deployment
from protocol.schemes.validated import BoundChoice
from simulations.campaigns.campaign import Campaign
from simulations.campaigns.claims import OURS, Claim, gain, half_width
from simulations.campaigns.federated import data_of, model_of, run_of
from simulations.campaigns.plots import Style, curves, dress, panels
from simulations.campaigns.render import Column, Part, percent, pivot, rates_table, table
from simulations.campaigns.rows import Figures, Row, where
from simulations.campaigns.store import Cell
from simulations.campaigns.study import Study
from simulations.campaigns.tuning import at_own_rates, climb
from simulations.common.figures import AMBER, BLUE, GREEN, GREY, ORANGE, PINK, SKY
from simulations.learning.configuration import RunConfig
from simulations.learning.noise_schedule import training_plan

PLAIN, VALIDATED, GROUPS = "secure sum", "validated sum", "median of 5 secure sums"
RETURNED = "validated, members' noise"
MEDIAN, TRIMMED, KRUM = "median", "trimmed mean", "Krum"
ARMS: Final = {
    PLAIN: ORANGE,
    VALIDATED: BLUE,
    RETURNED: AMBER,
    GROUPS: GREEN,
    MEDIAN: PINK,
    TRIMMED: SKY,
    KRUM: GREY,
}
RULES: Final = {MEDIAN: "median", TRIMMED: "trimmed-mean", KRUM: "krum"}
"""Of a trusted server, without noise: no arm of this system."""
COMMITTEE: Final = {"kind": "named", "size": 16, "corrupt": 2, "away": 2}

CLIP, BOUND, FAR = "sign flip, 1 clip", "sign flip, the bound", "sign flip, 100 clips"
DIRECTION, BACKDOOR = "one direction, the bound", "backdoor, 1 clip"
ATTACKS: Final = {
    CLIP: "sign-flip",
    BOUND: "sign-flip",
    DIRECTION: "direction",
    FAR: "sign-flip",
    BACKDOOR: "backdoor",
}
BELOW: Final = 0.98  # of the bound that vectors have: errors are in it too

VALIDATION: Final = 0.2  # share of the training examples on which rates are chosen
FINAL: Final = 0.35  # the server's last rate over its first
SLACK: Final = 0.01  # of accuracy: a loss that is surely smaller is none


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A task, and how many of its clients attack."""

    data: str = "digits"  # a data set by name
    model: str = "mlp"
    clients: str = "dirichlet"  # how examples are divided
    population: int = 100
    cohort: int = 100  # clients of a round
    rounds: int = 24
    local_rate: float = 0.3  # of a client's steps
    clip: float = 0.7
    epsilon: float = 8.0  # of a client over the whole run
    returned: bool = False  # an arm whose members add noise, and take it back
    rate: float = 4.0  # of the sketch
    first_rate: float = 2.0  # of the server, where the search begins
    fractions: tuple[float, ...] = (0.01, 0.05, 0.1, 0.2)
    attacks: tuple[str, ...] = tuple(ATTACKS)
    steps: int = 2  # by factors of two up or down from the first rate
    seeds: int = 3

    @property
    def arms(self) -> tuple[str, ...]:
        """Return the arms of the task."""
        return tuple(arm for arm in ARMS if self.returned or arm != RETURNED)

    def config(self, arm: str, rate: float, seed: int) -> RunConfig:
        """Return an arm without attackers."""
        size = self.cohort // 5 if arm == GROUPS else self.cohort
        raw: dict[str, Any] = {
            "seed": seed,
            "rounds": self.rounds,
            "task": {
                "data": self.data,
                "model": self.model,
                "clients": self.clients,
                "population": self.population,
                "minimum_examples": 3,
            },
            "local": {"learning_rate": self.local_rate, "steps": 8, "batch_size": 8},
            "server": {"learning_rate": rate, "final_learning_rate": FINAL * rate},
            "privacy": {"epsilon": self.epsilon, "delta": 1e-5, "clip_l2": self.clip},
            # Validation leaves attackers out, who count as lost; all noise is made for as many.
            "cohort": {
                "size": self.cohort,
                "tolerated_dropouts": size // 5,
                "tolerated_colluders": size // 20,
            },
            "sketch": {"controller": "fixed", "rate": self.rate, "rows": 3},
            "engine": {"workers": 1},
        }
        if arm in RULES:
            raw["robust"] = {"rule": RULES[arm], "corrupt": self.cohort // 5}
            raw["engine"]["aggregator"] = "plain"
        else:
            raw["noise"] = {"mechanism": "discrete-gaussian"}
        if arm == RETURNED:
            raw["noise"] = {"kind": "returned"}
        if arm in (VALIDATED, RETURNED):
            raw["scheme"] = {"kind": "validated", "committee": COMMITTEE}
        if arm == GROUPS:
            raw["robust"] = {"rule": "group-median", "corrupt": 2}
        return parse(raw, RunConfig)


def bound_of(config: RunConfig) -> BoundChoice:
    """Return the bounds of validated rounds, in clipping norms."""
    plan, dimension = training_plan(config), model_of(config, data_of(config)).dimension
    first_sketch = config.sketch.build(config.rounds).initial(dimension, plan.prior).spec
    return of_kind("priced", plan_deployment(plan, first_sketch).priced, BoundChoice)


def run(config: RunConfig, trial: bool) -> dict[str, Any]:
    """Run a configuration."""
    ran = run_of(config, data_of(config, VALIDATION if trial else 0.0))
    last = ran.last
    return {
        "accuracy": ran.accuracy,
        **{name: last.get(name) for name in ("loss", "backdoor", "dimension", "survivors")},
        "size": last.get("sketch_size"),
        "epsilon": last.get("epsilons", {}).get("guaranteed"),
    }


def figures_of(study: Study[Plan]) -> dict[str, Any]:
    """Choose a rate for every arm, run it, and run it with attackers."""
    plan = study.plan

    def cell(arm: str, rate: float, seed: int, trial: bool) -> Cell:
        name = f"{arm.replace(' ', '-')}-{rate:g}-{seed}" + ("-trial" if trial else "")
        return Cell(name, run, (plan.config(arm, rate, seed), trial))

    firsts, search = dict.fromkeys(plan.arms, plan.first_rate), partial(climb, most=plan.steps)
    rated = at_own_rates(study, firsts, cell, factor=2.0, search=search)
    checked = [arm for arm in (VALIDATED, RETURNED) if arm in plan.arms]
    bounds = {arm: bound_of(plan.config(arm, plan.first_rate, study.seed)) for arm in checked}
    asked = list(product(plan.arms, plan.attacks, plan.fractions))
    if BACKDOOR in plan.attacks:
        # How often a model that nobody attacks errs in favour of the attackers.
        asked += [(arm, BACKDOOR, 0.0) for arm in plan.arms]

    def attacked(arm: str, attack: str, fraction: float, seed: int) -> Cell:
        length = {FAR: 100.0, CLIP: 1.0, BACKDOOR: 1.0}.get(
            attack, BELOW * bounds[RETURNED if arm == RETURNED else VALIDATED].bound
        )
        if arm in RULES:
            length = 1.0  # A trusted server clips: beyond, nothing changes.
        table = {"fraction": fraction, "kind": ATTACKS[attack], "length": length}
        config = plan.config(arm, rated[arm].rate, seed).model_dump(exclude_none=True)
        name = f"{arm}-{attack}-{fraction:g}-{seed}"
        name = name.replace(" ", "-").replace(",", "").replace("'", "")
        return Cell(name, run, (parse({**config, "attackers": table}, RunConfig), False))

    runs = study.by_arm(asked, lambda each, seed: attacked(*each, seed))
    found = dict(zip(asked, runs, strict=True))
    clean = [_result(arm, "nobody", 0.0, rated[arm].runs) for arm in plan.arms]
    one = rated[VALIDATED].runs[0]
    return {
        "seeds": list(study.seeds),
        "data": plan.data,
        "dimension": one["dimension"],
        "numbers": one["size"],
        "epsilon": one["epsilon"],
        "bound": bounds[VALIDATED].bound,
        "bounds": {arm: [each.bound, each.member_bound] for arm, each in bounds.items()},
        "results": [*clean, *(_result(*each, runs) for each, runs in found.items())],
        "rates": [{"name": arm, "tried": each.tried} for arm, each in rated.items()],
    }


def _result(arm: str, attack: str, fraction: float, runs: list[Row]) -> dict[str, Any]:
    accuracies = [float(run["accuracy"]) for run in runs]
    losses = [float(run["loss"]) for run in runs if run["loss"] is not None]
    fooled = [float(run["backdoor"]) for run in runs if run["backdoor"] is not None]
    return {
        "arm": arm,
        "attack": attack,
        "fraction": fraction,
        "accuracy": fmean(accuracies),
        "half_width": half_width(accuracies),
        "accuracies": accuracies,
        "loss": fmean(losses) if losses else None,
        "fooled": fooled,
        "backdoor": fmean(fooled) if fooled else None,
        "backdoor_half_width": half_width(fooled) if fooled else None,
        "survivors": min((run["survivors"] for run in runs if run["survivors"]), default=None),
    }


CLEAN: Final = (
    Column("", "arm"),
    percent("accuracy, %", "accuracy", "half_width"),
    Column("test loss", "loss", ".3f"),
)


def _parts(figures: Figures) -> Iterator[Part]:
    rows, attacks = figures["results"], figures["plan"]["attacks"]
    yield table("Nobody attacks", CLEAN, where(rows, attack="nobody"), brief=True)
    labels, head = (Column("share of attackers", "arm"),), "{:.0%}".format
    for attack in attacks:
        found = [row for row in where(rows, attack=attack) if row["fraction"]]
        title, cell = f"Accuracy, %: {attack}", percent("", "accuracy", "half_width")
        yield pivot(title, labels, "fraction", cell, found, head=head, brief=True)
    if BACKDOOR in attacks:
        found = sorted(where(rows, attack=BACKDOOR), key=itemgetter("fraction"))
        title = "Marked pictures that get the attackers' label, %"
        cell = percent("", "backdoor", "backdoor_half_width")
        yield pivot(title, labels, "fraction", cell, found, head=head, brief=True)
    yield rates_table(figures["rates"])


def claims(figures: Figures) -> Iterator[Claim]:
    """Yield what validation costs where nobody attacks, and what it saves where somebody does."""
    fractions = figures["plan"]["fractions"]

    def of(arm: str, attack: str = "nobody", place: int = 0, what: str = "accuracies") -> Any:
        # Rows are in the order of the plan's fractions.
        return where(figures["results"], arm=arm, attack=attack)[place][what]

    def claim(said: str, one: list[float], other: list[float], slack: float = 0.0) -> Claim:
        return Claim.more(said, OURS, gain(one, other), "same seeds", margin=-slack)

    said = "without attackers, validated sums are as accurate as plain ones"
    yield claim(said, of(VALIDATED), of(PLAIN), SLACK)
    for (place, fraction), arm in product(enumerate(fractions), (PLAIN, GROUPS)):
        said = f"{fraction:.0%} send 100 clips: validated sums are more accurate than a {arm}"
        yield claim(said, of(VALIDATED, FAR, place), of(arm, FAR, place))
    for place, fraction in enumerate(fractions):
        said = f"{fraction:.0%} send what the bound lets through: validated sums lose nothing by it"
        yield claim(said, of(VALIDATED, BOUND, place), of(VALIDATED), SLACK)
    if BACKDOOR in figures["plan"]["attacks"]:
        usual = of(VALIDATED, BACKDOOR, len(fractions), "fooled")
        for place, fraction in enumerate(fractions):
            said = f"{fraction:.0%} plant a backdoor within the clip: validated sums keep it out"
            yield claim(said, usual, of(VALIDATED, BACKDOOR, place, "fooled"), SLACK)
    if where(figures["results"], arm=RETURNED):
        said = "without attackers, members' noise is more accurate than clients' own"
        yield claim(said, of(RETURNED), of(VALIDATED))
        for place, fraction in enumerate(fractions):
            said = (
                f"{fraction:.0%} at their bound: members' noise is more accurate than clients' own"
            )
            yield claim(said, of(RETURNED, BOUND, place), of(VALIDATED, BOUND, place))


def plot(figures: Figures) -> Figure:
    """Plot accuracy by the share of attackers, an attack to a panel."""
    attacks = [attack for attack in figures["plan"]["attacks"] if attack != BACKDOOR]
    figure, [panes] = panels(1, len(attacks), 5.2 * len(attacks), 4.2)
    for axes, attack in zip(panes, attacks, strict=True):
        rows = where(figures["results"], attack="nobody") + where(figures["results"], attack=attack)
        looks = {
            arm: Style(arm, colour, line="--" if arm in RULES else "-")
            for arm, colour in ARMS.items()
            if where(rows, arm=arm)
        }
        curves(axes, rows, "arm", looks, "fraction", "accuracy", "half_width")
        dress(axes, "share of attackers", "test accuracy", attack, percents=True)
    return figure


PRESETS: Final = {
    "usual": Plan(),
    "writers": Plan(
        data="mnist",
        model="mlp60",
        clients="natural",
        population=500,
        cohort=100,
        rounds=30,
        local_rate=0.1,
        clip=0.5,
        returned=True,
        rate=64.0,
        first_rate=2.0,
        fractions=(0.01, 0.1),
        attacks=(BOUND, FAR, BACKDOOR),
        steps=3,
    ),
    "quick": Plan(
        population=80,
        cohort=20,
        rounds=8,
        returned=True,
        fractions=(0.1,),
        attacks=(BOUND, FAR, BACKDOOR),
        steps=0,
        seeds=2,
    ),
}

CAMPAIGN = Campaign(
    name="attackers",
    title="Malicious clients under secure sums, validated sums and robust rules",
    presets=PRESETS,
    figures=figures_of,
    claims=claims,
    parts=_parts,
    plots={"accuracy": plot},
    stem="attackers-{data}",
)
