"""What FedSel's experiments train: ways to report, tables, learning rates, repetitions.

Source: Liu et al. 2020 (arXiv 2003.10637), Table 2 and Section 5.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Literal

from dp.checks import require_at_least
from dp.local.selection import (
    RankSelector,
    exponential,
    perturbed_encoding,
    perturbed_sampling,
    printed_perturbed_encoding,
)
from dp.local.two_stage import selection_share_for

# Coordinates that are sent; "blind" is a random one that is not scaled up, "top" the largest
Selection = Literal["all", "random", "projected", "blind", "top", "EXP", "PE", "PE-printed", "PS"]

Model = Literal["logistic", "SVM"]

Values = Literal["exact", "PM", "HM", "Duchi"]  # how what is sent is randomised
KEPT_SHARE: Final = 0.1  # k/d, the share of coordinates that count as large
# Those that choose privately, or say so
SELECTIONS: Final[tuple[Selection, ...]] = ("EXP", "PE", "PE-printed", "PS")

HONEST: Final[tuple[Selection, ...]] = ("EXP", "PE", "PS")  # those that keep their promise
CHOICE_SHARE: Final = 0.1  # mu, the share of epsilon for choosing
LARGEST_SHARE: Final = 0.2  # theta, the most of it by the rule of Figure 3 (c)
CERTAIN: Final = 40.0  # an epsilon with which nothing is left to chance


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to report."""

    name: str  # as the paper abbreviates it
    selection: Selection  # which coordinates are sent
    values: Values = "exact"  # how a value is randomised
    choice_epsilon: float = 0.0  # of the selection; 0 where it does not look
    value_epsilon: float = math.inf  # of all values of a report; infinite if exact

    def selector(self, dimension: int) -> RankSelector | None:
        """Return the private selector, if it is one."""
        top = min(max(1, round(KEPT_SHARE * dimension)), dimension - 1)
        makers: dict[str, Callable[[], RankSelector]] = {
            "blind": lambda: perturbed_sampling(dimension, top, 0.0),
            "top": lambda: perturbed_sampling(dimension, 1, CERTAIN),
            "EXP": lambda: exponential(dimension, self.choice_epsilon),
            "PE": lambda: perturbed_encoding(dimension, top, self.choice_epsilon),
            "PE-printed": lambda: printed_perturbed_encoding(dimension, top, self.choice_epsilon),
            "PS": lambda: perturbed_sampling(dimension, top, self.choice_epsilon),
        }
        return makers[self.selection]() if self.selection in makers else None

    def epsilon(self, dimension: int) -> float:
        """Return what one report really spends."""
        selector = self.selector(dimension)
        chosen = 0.0 if selector is None else selector.epsilon
        return chosen + self.value_epsilon


def flat(values: Values, epsilon: float) -> Arm:
    """Sampled coordinates, as many as epsilon allows."""
    return Arm(values, "random", values, 0.0, epsilon)


def blind(epsilon: float) -> Arm:
    """Return FedSel without looking: a random coordinate, all of epsilon for its value."""
    return Arm("RND-PM", "blind", "PM", 0.0, epsilon)


def staged(
    selection: Selection,
    values: Values,
    epsilon: float,
    *,
    control: bool = False,
    share: float = CHOICE_SHARE,
) -> Arm:
    """FedSel: epsilon in two parts, or, in the controls "-C", all of it for the value and more."""
    for_choice = share * epsilon
    name = f"{selection}-{values}" + ("-C" if control else "")
    return Arm(name, selection, values, for_choice, epsilon if control else epsilon - for_choice)


def baseline() -> Arm:
    """Return the arm without privacy, which sends whole gradients."""
    return Arm("NP", "all")


def choosing(epsilon: float) -> list[Arm]:
    """Figure 2 (a) to (d): choices alone, every value exact."""
    return [Arm(selection, selection, "exact", epsilon) for selection in HONEST]


def by_rule(selection: Selection, epsilon: float, dimension: int, clients: int) -> Arm:
    """Figure 3 (c): the choice has what is left when values have enough, theta at most."""
    share = selection_share_for(dimension, clients, epsilon, LARGEST_SHARE)
    if share == 0.0:
        return replace(blind(epsilon), name=f"{selection}-PM")
    return staged(selection, "PM", epsilon, share=share)


def table3_arms(epsilon: float) -> list[Arm]:
    """PM, scaled up and not, and every selector with and without the additional budget."""
    controls = [staged(s, "PM", epsilon, control=True) for s in SELECTIONS]
    plain = [staged(s, "PM", epsilon) for s in SELECTIONS]
    return [flat("PM", epsilon), blind(epsilon), *plain, *controls]


def other_arms(epsilon: float) -> list[Arm]:
    """Figure 2 (h) and (i): other value mechanisms, and random projection."""
    projected = Arm("PM-RP", "projected", "PM", 0.0, epsilon)
    pairs = [(flat(v, epsilon), staged("PS", v, epsilon)) for v in ("HM", "Duchi")]
    return [*(arm for pair in pairs for arm in pair), projected]


SWEPT: Final[Model] = "logistic"  # the model of Figure 2

# The paper's gain and loss of EXP, PE and PS, in points of accuracy
PAPER_TABLE3: Final[dict[tuple[str, str], tuple[float, ...]]] = {
    ("syn-L-0.01-0.9", "logistic"): (8.6074, 0.3517, 5.410, 1.192, 5.975, 0.4970),
    ("syn-L-0.01-0.9", "SVM"): (7.1950, 2.1593, 3.7704, 0.8533, 5.065, 2.0816),
    ("BANK", "logistic"): (2.4197, -0.157, 3.2338, 0.0464, 2.5525, 0.1463),
    ("BANK", "SVM"): (4.3823, 0.4436, 3.4369, 0.2530, 4.0244, 0.0164),
    ("KDD", "logistic"): (2.0471, 0.5091, 2.5148, 0.2322, 2.0171, 0.3428),
    ("KDD", "SVM"): (1.85629, -0.1625, 2.2168, 0.2288, 1.8291, 0.4465),
    ("ADULT", "logistic"): (5.5745, 0.2935, 5.6445, 1.3096, 6.0535, 0.8091),
    ("ADULT", "SVM"): (5.5361, 0.1949, 5.6057, 0.9550, 5.1442, 0.3852),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is trained."""

    # Of Table 3: BANK, ADULT, KDD or such as syn-H-0.1-0.6
    tables: tuple[str, ...] = ("syn-L-0.01-0.9", "BANK", "KDD", "ADULT")
    models: tuple[Model, ...] = ("logistic", "SVM")  # of Table 3
    epsilon: float = 2.0  # of a report, in Table 3
    # Further epsilons of a report, in Figure 2 (f) and (g)
    sweep: tuple[float, ...] = (0.5, 1.0, 4.0)
    common_rates: tuple[float, ...] = (0.1, 0.3, 1.0)  # at which all arms of Table 3 are compared
    figure_rate: float = 1.0  # the common rate of the figures
    # Among which each arm finds its own
    rates: tuple[float, ...] = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
    repeats: int = 10  # of the cross-validation in Table 3
    sweep_repeats: int = 4  # the same in the figures
    tuning_repeats: int = 3  # the same to find rates
    # Epsilons of a choice, in Figure 2 (a) to (d)
    choices: tuple[float, ...] = (0.5, 1.0, 4.0, 8.0)
    # Of Figure 3 (b), on the last table: mu, the first of which the paper calls the best
    shares: tuple[float, ...] = (0.1, 0.2, 0.4, 0.8)
    # Of Figure 3 (c): users of a step, of all that train, and how many steps
    batches: tuple[float, ...] = (0.0025, 0.005, 0.01, 0.02)
    batch_steps: int = 50
    # Coordinates of Figure 2 (e) and of Table 1
    dimensions: tuple[int, ...] = (10, 100, 1000, 10_000)
    folds: int = 5  # of each

    def __post_init__(self) -> None:
        for name in ("repeats", "sweep_repeats", "folds"):
            require_at_least(name, getattr(self, name), 2)
        require_at_least("tuning_repeats", self.tuning_repeats, 1)


PRESETS = {
    "usual": Plan(),
    # Figures 2 (a) to (e), 3, and the theory; of Table 3 nothing
    "choices": Plan(
        tables=("syn-L-0.01-0.9", "ADULT"), models=(), sweep=(0.5,), common_rates=(0.1,), repeats=4
    ),
    "quick": Plan(
        tables=("syn-S-0.01-0.6",),
        models=("logistic",),
        sweep=(),
        common_rates=(1.0,),
        rates=(1.0, 10.0),
        choices=(1.0, 4.0),
        shares=(0.1, 0.8),
        batches=(0.01, 0.02),
        dimensions=(10, 100),
        repeats=2,
        sweep_repeats=2,
        tuning_repeats=1,
        folds=2,
    ),
}
