"""The methods that are compared: whom their clients trust, and what of them is varied.

Every method is the federated engine with another source of means; nothing else differs. A method
has one knob that changes the bytes of its messages, and two figures that are chosen by trial: the
clip of an update, and how far the model may go in a round.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from itertools import product
from typing import Any

Changes = tuple[tuple[str, Any], ...]


class Trust(Enum):
    """Whom a client has to trust."""

    EVERYBODY = "everybody"
    SERVER = "the server"
    COHORT = "all but a few of the cohort"
    NOBODY = "nobody"


@dataclass(frozen=True, slots=True)
class Knob:
    """What changes the bytes."""

    key: str  # of the configuration; `reports` stands for passes over the population
    label: str  # of its values
    usual: float  # at which privacy is varied
    values: tuple[float, ...]  # at which bytes are compared

    def changes(self, value: float, rounds: int) -> Changes:
        """Return what a value means, for a run of so many rounds a pass."""
        if self.key == "reports":
            return (("rounds", round(value) * rounds),)
        whole = self.key == "local_dp.repeats"
        return ((self.key, round(value) if whole else value),)


@dataclass(frozen=True, slots=True)
class Candidate:
    """Two figures of a run that are chosen by trial."""

    # Clip, in units of an update: l2 norm, or of a coordinate where the method has that
    bound: float
    reach: float  # bound times the server's learning rate in the first round


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """One way from updates to their mean."""

    name: str  # of its rows and files
    title: str  # for readers
    trust: Trust = Trust.NOBODY  # whom clients trust
    changes: Changes  # to the task's configuration
    # bounds, reaches: grid of candidates
    bounds: tuple[float, ...] = ()
    reaches: tuple[float, ...] = ()
    knob: Knob  # what changes the bytes
    tuned_as: str | None = None  # another method whose choice is taken over
    slow: bool = False  # whether it gets fewer runs
    extended: bool = False  # whether it also runs at the larger epsilons

    @property
    def candidates(self) -> list[Candidate]:
        """Return the grid."""
        return [Candidate(*pair) for pair in product(self.bounds, self.reaches)]


def _local(algorithm: str, **options: Any) -> Changes:
    """Return the configuration of an algorithm of local privacy."""
    given = tuple((f"local_dp.{name}", value) for name, value in options.items())
    return (("engine.aggregator", "local"), ("local_dp.algorithm", algorithm), *given)


RATE = Knob("sketch.rate", "rate", 1.0, (1.0, 2.0, 4.0, 16.0))
REPORTS = Knob("reports", "reports", 1.0, (1.0, 2.0))
ONE_REPORT = Knob("reports", "reports", 1.0, (1.0,))

METHODS = (
    Method(
        name="plain",
        title="no privacy",
        trust=Trust.EVERYBODY,
        changes=(("engine.aggregator", "plain"),),
        bounds=(1.0,),
        reaches=(1.0, 3.0, 10.0),
        knob=ONE_REPORT,
    ),
    Method(
        name="central",
        title="central Gaussian",
        trust=Trust.SERVER,
        changes=(("engine.aggregator", "central"),),
        bounds=(0.3, 1.0),
        reaches=(0.2, 1.0, 4.0, 16.0),
        knob=RATE,
        slow=True,
    ),
    Method(
        name="distributed",
        title="distributed binomial",
        trust=Trust.COHORT,
        changes=(("engine.aggregator", "ideal"),),
        knob=RATE,
        tuned_as="central",
        slow=True,
    ),
    Method(
        name="piecewise",
        title="Piecewise, sampled coordinates",
        changes=_local("piecewise"),
        bounds=(0.06, 1.0),
        reaches=(0.03, 0.1, 0.3, 1.0),
        knob=REPORTS,
        extended=True,
    ),
    Method(
        name="hybrid",
        title="Hybrid, sampled coordinates",
        changes=_local("hybrid"),
        knob=REPORTS,
        tuned_as="piecewise",
    ),
    Method(
        name="cross_polytope",
        title="cross-polytope (vqSGD)",
        changes=_local("cross_polytope"),
        bounds=(0.5, 2.0),
        reaches=(0.001, 0.1, 1.0),
        knob=Knob("local_dp.repeats", "repeats", 1.0, (1.0, 4.0, 16.0)),
    ),
    Method(
        name="sqsgd",
        title="sqSGD, K = 2",
        changes=_local("sqsgd", levels=2),
        bounds=(0.5, 1.0),
        reaches=(0.03, 0.3, 1.0),
        knob=Knob("local_dp.sample_share", "share", 0.5, (0.05, 0.5, 1.0)),
        slow=True,
    ),
    Method(
        name="fedsel_ps",
        title="FedSel, PS",
        changes=_local("fedsel", selector="sampling"),
        bounds=(0.25, 1.0),
        reaches=(0.3, 10.0, 30.0),
        knob=REPORTS,
        slow=True,
    ),
    Method(
        name="fedsel_pe",
        title="FedSel, PE",
        changes=_local("fedsel", selector="encoding"),
        bounds=(0.25, 1.0),
        reaches=(0.3, 10.0, 30.0),
        knob=ONE_REPORT,
        slow=True,
    ),
)

BY_NAME = {method.name: method for method in METHODS}

SKETCHED = 4.0  # rate of the fixed sketch that stands beside the distributed sum without one
