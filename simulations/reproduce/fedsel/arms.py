"""The ways to report that FedSel's experiments compare.

Source: Liu et al. 2020 (arXiv 2003.10637), Table 2 and Section 5.3.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from dp.local.selection import (
    RankSelector,
    exponential,
    perturbed_encoding,
    perturbed_sampling,
    printed_perturbed_encoding,
)

Selection = Literal["all", "random", "projected", "blind", "EXP", "PE", "PE-printed", "PS"]
"""Coordinates that are sent; "blind" is a random one that is not scaled up."""

Values = Literal["exact", "PM", "HM", "Duchi"]
"""How what is sent is randomised."""

KEPT_SHARE: Final = 0.1
"""k/d, the share of coordinates that count as large."""

SELECTIONS: Final[tuple[Selection, ...]] = ("EXP", "PE", "PE-printed", "PS")
"""Those that choose privately, or say so."""

HONEST: Final[tuple[Selection, ...]] = ("EXP", "PE", "PS")
"""Those that keep their promise."""

CHOICE_SHARE: Final = 0.1
"""mu, the share of epsilon for choosing."""


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


def staged(selection: Selection, values: Values, epsilon: float, *, control: bool = False) -> Arm:
    """FedSel: epsilon in two parts, or, in the controls "-C", all of it for the value and more."""
    for_choice = CHOICE_SHARE * epsilon
    name = f"{selection}-{values}" + ("-C" if control else "")
    return Arm(name, selection, values, for_choice, epsilon if control else epsilon - for_choice)


def baseline() -> Arm:
    """Return the arm without privacy, which sends whole gradients."""
    return Arm("NP", "all")


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
