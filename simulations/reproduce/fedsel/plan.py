"""What FedSel's experiments train: tables, arms, learning rates, repetitions.

Source: Liu et al. 2020 (arXiv 2003.10637), Section 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from simulations.reproduce.fedsel.training import Model

SWEPT: Final[Model] = "logistic"
"""The model of Figure 2."""

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
"""The paper's gain and loss of EXP, PE and PS, in points of accuracy."""


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
    tuning_repeats: int = 2  # the same to find rates
    folds: int = 5  # of each

    def __post_init__(self) -> None:
        for name, least in (("repeats", 2), ("sweep_repeats", 2), ("folds", 2)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if self.tuning_repeats < 1:
            raise ValueError(f"tuning_repeats must be at least 1, got {self.tuning_repeats}")


PRESETS = {
    "usual": Plan(),
    "quick": Plan(
        tables=("syn-S-0.01-0.6",),
        models=("logistic",),
        sweep=(),
        common_rates=(1.0,),
        rates=(1.0, 10.0),
        repeats=2,
        sweep_repeats=2,
        tuning_repeats=1,
        folds=2,
    ),
}
