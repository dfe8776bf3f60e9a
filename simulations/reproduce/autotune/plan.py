"""What `veilsum reproduce autotune` varies: controllers, noise and seeds, on a task from a file.

"Genie" is the published baseline: fixed rates on a grid, of which the largest that costs no more
than a stated slack of accuracy is picked afterwards, with all runs in hand.

Source: arXiv 2307.10999, section 5 and Appendix A.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from protocol.errors import ConfigurationError
from protocol.planning.configuration import load, parse
from simulations.learning.configuration import RunConfig, demo_config
from simulations.learning.run.overrides import changed
from simulations.learning.template import example_names, example_text

EMBEDDED: Final = "embedded"  # in the place of a file: the embedded digits with few clients
GENIE: Final = "genie"
PUBLISHED: Final = "published"
ARRIVING: Final = "adapt_norm"
BUDGET: Final = "adapt_budget"
TWO_STAGE: Final = "two_stage"
TAIL: Final = "adapt_tail"

PAPER_GAMMA: Final = 0.1  # that of the paper's tables
Changes = tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to choose sizes."""

    family: str  # arms of one family differ in one number, `value`
    value: float | None  # the rate of the Genie, or the controller's own figure
    changes: Changes  # to the base configuration

    @property
    def name(self) -> str:
        """Of its row."""
        return self.family if self.value is None else f"{self.family} {self.value:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is varied; every combination is run."""

    # Of the task, whose sketch is varied: an example that comes with the program, or a TOML file
    config: str = ""
    noise: tuple[float, ...] = (0.1, 0.3, 0.5)  # noise multipliers
    # Learning rate of the server at each of them; the file's if left out
    server_rates: tuple[float, ...] = ()
    # Of the Genie; 1, which is no compression, is always among them. If there are no others,
    # nothing is said of the Genie.
    rates: tuple[float, ...] = (4.0, 16.0, 64.0, 256.0)
    # Shares of the accuracy without compression that the Genie may lose, as in the paper: a claim
    # of each, beside that of one point
    tolerances: tuple[float, ...] = ()
    gammas: tuple[float, ...] = (0.25, 0.1, 0.05, 0.01)  # of Adapt Norm
    published: tuple[float, ...] = ()  # gammas of its published rule
    budgets: tuple[float, ...] = ()  # gammas of Adapt Budget
    others: tuple[str, ...] = ()  # further controllers, with their defaults or as in the paper
    # At which the published rule begins: from no compression, in steps of a factor of two, a short
    # run would spend most of its bytes on the way
    first_rate: float = 8.0
    seeds: int = 1  # of data split, model, batches, hashes and noise
    rounds: int = 0  # of each run; 0 for as many as the file says
    # Accuracy that the paper's gamma costs in its tables for such a task, beside its smallest
    # gamma, as the mean over noise multipliers; None for no such table
    published_loss: float | None = None

    def __post_init__(self) -> None:
        """Raise ``ValueError`` for numbers out of range."""
        least_of = {"noise": 0.001, "rates": 1.0}
        for name in ("noise", "rates", "gammas", "published", "budgets"):
            least = least_of.get(name, 1e-4)
            if any(value < least for value in getattr(self, name)):
                raise ValueError(f"{name} must be {least:g} at least, got {getattr(self, name)}")
        if len(self.server_rates) not in (0, len(self.noise)):
            got = f"{len(self.server_rates)} for {len(self.noise)}"
            raise ValueError(f"server_rates must be one for each noise, or none, got {got}")

    def arms(self) -> list[Arm]:
        """All ways, no compression first."""
        sketch = "sketch.controller"
        # The paper does not compress the first rounds of Two Stage.
        start = {
            name: (("sketch.first_rate", float(rate)),)
            for name, rate in ((PUBLISHED, self.first_rate), (TWO_STAGE, 1.0))
        }
        fixed = [
            Arm(GENIE, rate, ((sketch, "fixed"), ("sketch.rate", float(rate))))
            for rate in sorted({1.0, *self.rates})
        ]
        families = {PUBLISHED: self.published, ARRIVING: self.gammas, BUDGET: self.budgets}
        tuned = [
            Arm(name, gamma, ((sketch, name), ("sketch.gamma", gamma), *start.get(name, ())))
            for name, gammas in families.items()
            for gamma in gammas
        ]
        others = [Arm(name, None, ((sketch, name), *start.get(name, ()))) for name in self.others]
        return [*fixed, *tuned, *others]

    def check(self) -> None:
        """Refuse a plan without a task, with a `ConfigurationError`."""
        base_of(self)

    def server_rate(self, noise: float) -> float | None:
        """Learning rate of the server at a noise multiplier; None for the file's."""
        return dict(zip(self.noise, self.server_rates, strict=False)).get(noise)


# MNIST by writer with a million parameters; the table is that of F-EMNIST
WRITERS: Final = Plan(
    config="autotune-writers-cnn",
    noise=(0.1, 0.3, 1.0),
    server_rates=(3.0, 1.0, 0.1),
    rates=(64.0, 256.0, 1024.0, 4096.0, 16384.0),
    gammas=(1.0, 0.25, 0.1, 0.05, 0.01),
    published=(0.25, 0.1, 0.05, 0.01),
    budgets=(0.1,),
    seeds=3,
    rounds=300,
    published_loss=0.0082,
)

# Shakespeare by role with the recurrent network
SHAKESPEARE: Final = Plan(
    config="autotune-shakespeare",
    noise=(0.06, 0.15),
    server_rates=(0.02, 0.02),
    rates=(4.0, 16.0, 64.0, 256.0, 1024.0),
    gammas=(0.25, 0.1, 0.05, 0.01),
    published=(0.25, 0.1, 0.05, 0.01),
    budgets=(0.1,),
    seeds=2,
    rounds=400,
    published_loss=0.0045,
)


def paper_arm_of(plan: Plan, seeds: int) -> Plan:
    """No compression and the paper's gamma alone, with more seeds: what it costs accuracy."""
    return replace(
        plan, rates=(), gammas=(PAPER_GAMMA,), published=(), budgets=(), others=(), seeds=seeds
    )


def base_of(plan: Plan) -> RunConfig:
    """Return the task."""
    if plan.config == EMBEDDED:
        small = [("rounds", 8), ("engine.aggregator", "central"), ("cohort.size", 16)]
        return changed(demo_config(), [*small, ("cohort.tolerated_dropouts", 2)])
    if not plan.config:
        valid = f"--set config=FILE, a TOML file of a task, or one of {', '.join(example_names())}"
        raise ConfigurationError("config", "no file", valid)
    if plan.config in example_names():
        return parse(tomllib.loads(example_text(plan.config)), RunConfig)
    return load(Path(plan.config), RunConfig)


def point_config(plan: Plan, base: RunConfig, noise: float, arm: Arm, seed: int) -> RunConfig:
    """Return the configuration of one run: the plan's task with a noise multiplier and an arm."""
    raw = base.model_copy(update={"sketch": type(base.sketch)(rows=base.sketch.rows)})
    changes: list[tuple[str, Any]] = [("seed", seed), *arm.changes]
    if plan.rounds:
        changes.append(("rounds", plan.rounds))
    if (rate := plan.server_rate(noise)) is not None:
        changes.append(("server.learning_rate", float(rate)))
    privacy = base.privacy.model_copy(update={"epsilon": None, "noise_multiplier": float(noise)})
    return changed(raw.model_copy(update={"privacy": privacy}), changes)


# The paper's other controllers, with a small network and epsilon about 9
OTHERS: Final = Plan(
    config="autotune-writers",
    noise=(4.0,),
    server_rates=(0.1,),
    rates=(),
    gammas=(PAPER_GAMMA,),
    others=(TWO_STAGE, TAIL),
    seeds=3,
    rounds=300,
)

# As many rounds as in the paper: does what is lost on the way come back?
LONG: Final = replace(
    paper_arm_of(WRITERS, 3), noise=(0.1,), server_rates=(3.0,), rounds=1500, published_loss=None
)

# The paper's grid of factors of two, at noise as in its tables: that of 0.4 (writers) and 0.6
# (Shakespeare) among 100 clients. What lies above these rates had lost too much before.
TOLERANCES: Final = (0.01, 0.02)
GRIDS: Final = {
    "writers-genie": replace(
        paper_arm_of(WRITERS, 3),
        noise=(0.1,),
        server_rates=(3.0,),
        rates=(16.0, 32.0, 64.0, 128.0),
        tolerances=TOLERANCES,
        published_loss=None,
    ),
    "shakespeare-genie": replace(
        paper_arm_of(SHAKESPEARE, 3),
        noise=(0.06,),
        server_rates=(0.02,),
        rates=(2.0, 4.0, 8.0, 16.0, 32.0),
        tolerances=TOLERANCES,
    ),
}

PRESETS: Final = {
    **GRIDS,
    "usual": Plan(),
    "writers": WRITERS,
    "writers-long": LONG,
    "shakespeare": SHAKESPEARE,
    "writers-others": OTHERS,
    "writers-paper": paper_arm_of(WRITERS, 4),
    "shakespeare-paper": paper_arm_of(SHAKESPEARE, 5),
    "quick": Plan(config=EMBEDDED, noise=(0.5,), rates=(8.0,), gammas=(0.1, 0.05)),
}
