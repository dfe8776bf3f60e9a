"""FedSel's Table 3 and Figure 2 (f) to (i): `veilsum reproduce fedsel`.

The paper trains everything with one learning rate and does not say which. It matters more than
anything else here: flat mechanisms scale a coordinate up by d and two-stage ones do not, so that
one rate is d times too large for the one or too small for the other. So every comparison is made
both ways: at common rates, and with each arm's own best rate, found in repetitions of their own.
Beside accuracy stands balanced accuracy, which tells a model from a constant answer.

A cell is one arm on one table at one rate and epsilon, in some repetitions of a cross-validation.
Arms of one repetition have the same folds and the same order of users. Finished cells are kept.

Source: Liu et al. 2020 (arXiv 2003.10637), Section 5.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from simulations.learning.data import DataFolder
from simulations.reproduce.fedsel.arms import Arm
from simulations.reproduce.fedsel.data import LOADERS, Examples, load
from simulations.reproduce.fedsel.training import Model, Run, Task, score

FIRST_TUNING_REPEAT: Final = 1000
"""Repetitions from this number on choose learning rates, and count for nothing else."""

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
    """What is trained.

    Attributes:
        tables, models: of Table 3.
        epsilon: of a report, in Table 3.
        sweep: further epsilons of a report, in Figure 2 (f) and (g).
        common_rates: at which all arms of Table 3 are compared.
        figure_rate: the common rate of the figures.
        rates: among which each arm finds its own.
        repeats: of the cross-validation in Table 3.
        sweep_repeats: the same in the figures.
        tuning_repeats: the same to find rates.
        folds: of each.
    """

    tables: Sequence[str] = ("syn-L-0.01-0.9", "BANK", "KDD", "ADULT")
    models: Sequence[Model] = ("logistic", "SVM")
    epsilon: float = 2.0
    sweep: Sequence[float] = (0.5, 1.0, 4.0)
    common_rates: Sequence[float] = (0.1, 0.3, 1.0)
    figure_rate: float = 1.0
    rates: Sequence[float] = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
    repeats: int = 10
    sweep_repeats: int = 4
    tuning_repeats: int = 2
    folds: int = 5

    @classmethod
    def quick(cls) -> Plan:
        """A small synthetic table: seconds, and no files."""
        return cls(
            tables=("syn-S-0.01-0.6",),
            models=("logistic",),
            sweep=(),
            common_rates=(1.0,),
            rates=(1.0, 10.0),
            repeats=2,
            sweep_repeats=2,
            tuning_repeats=1,
            folds=2,
        )

    def __post_init__(self) -> None:
        """Raise ``ValueError`` unless intervals can be made."""
        for name in ("repeats", "sweep_repeats", "folds"):
            if getattr(self, name) < 2:
                raise ValueError(f"{name} must be at least 2, got {getattr(self, name)}")
        if self.tuning_repeats < 1:
            raise ValueError(f"tuning_repeats must be at least 1, got {self.tuning_repeats}")

    def changed(self, tables: Sequence[str] | None, repeats: int | None) -> Plan:
        """Return the plan with what is given in place of its own.

        Raises:
            ValueError: repeats is below 2.
        """
        given = self.repeats if repeats is None else repeats
        return replace(self, tables=tuple(tables or self.tables), repeats=given)


@dataclass(frozen=True, slots=True)
class Cell:
    """One arm on one table.

    Attributes:
        table, task, arm: what is trained.
        repeats: numbers of the repetitions.
    """

    table: str
    task: Task
    arm: Arm
    repeats: tuple[int, ...]

    @property
    def key(self) -> str:
        """All that its result depends on, but for the campaign's seed and folds."""
        return json.dumps(
            [self.table, asdict(self.task), asdict(self.arm), self.repeats], sort_keys=True
        )


@dataclass(frozen=True, slots=True)
class Result:
    """What a cell came to: float64[repeats, folds] each."""

    accuracy: NDArray[np.float64]
    balanced: NDArray[np.float64]


class Journal:
    """Finished cells, one line each; of a campaign that stopped, what is there is used."""

    def __init__(self, path: Path, campaign: Mapping[str, Any]) -> None:
        self._path = path
        self._campaign = json.loads(json.dumps(campaign))
        self._found: dict[str, Result] = {}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        *lines, rest = path.read_text(encoding="utf-8").split("\n")
        if rest:
            # A campaign was killed while it wrote: the line is ended, and its cell made again.
            with path.open("a", encoding="utf-8") as file:
                file.write("\n")
        for line in lines:
            self._read(line)

    def _read(self, line: str) -> None:
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            return  # What a killed campaign wrote last.
        if entry["campaign"] == self._campaign:
            parts = (np.array(entry[name]) for name in ("accuracy", "balanced"))
            self._found[entry["cell"]] = Result(*parts)

    def get(self, cell: Cell, make: Callable[[Cell], Result]) -> Result:
        """Return what is kept of a cell, or make and keep it."""
        if cell.key not in self._found:
            result = make(cell)
            self._found[cell.key] = result
            entry = {
                "campaign": self._campaign,
                "cell": cell.key,
                "accuracy": result.accuracy.tolist(),
                "balanced": result.balanced.tolist(),
            }
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")
        return self._found[cell.key]


class Campaign:
    """All cells of a plan, trained once each.

    Args:
        plan: what.
        tables: by name.
        seed: fixes everything.
        journal: keeps finished cells.
        advance: told after every cell that was asked for.
    """

    def __init__(
        self,
        plan: Plan,
        tables: Mapping[str, Examples],
        seed: int,
        journal: Journal,
        advance: Callable[[], None] = lambda: None,
    ) -> None:
        self.plan, self.tables = plan, tables
        self.seed, self._journal, self._advance = seed, journal, advance

    def result(self, table: str, task: Task, arm: Arm, repeats: Iterable[int]) -> Result:
        """Return the result of a cell."""
        found = self._journal.get(Cell(table, task, arm, tuple(repeats)), self._train)
        self._advance()
        return found

    def own_rate(self, table: str, model: Model, arm: Arm) -> float:
        """Return the rate with the best accuracy in the repetitions for tuning."""
        found = self.tuning(table, model, arm)
        return max(zip(found["accuracy"], found["rates"], strict=True))[1]

    def tuning(self, table: str, model: Model, arm: Arm) -> dict[str, list[float]]:
        """Return accuracies of one epoch at all rates, from the repetitions for tuning."""
        repeats = range(FIRST_TUNING_REPEAT, FIRST_TUNING_REPEAT + self.plan.tuning_repeats)
        results = [self.result(table, Task(model, r), arm, repeats) for r in self.plan.rates]
        return {
            "rates": list(self.plan.rates),
            "accuracy": [float(result.accuracy.mean()) for result in results],
            "balanced": [float(result.balanced.mean()) for result in results],
        }

    def _train(self, cell: Cell) -> Result:
        scores = [
            [self._fold(cell, repeat, fold) for fold in range(self.plan.folds)]
            for repeat in cell.repeats
        ]
        figures = np.array(scores)
        return Result(figures[:, :, 0], figures[:, :, 1])

    def _fold(self, cell: Cell, repeat: int, fold: int) -> tuple[float, float]:
        """Train on all folds but one and test on that."""
        table = self.tables[cell.table]
        seed = (self.seed, zlib.crc32(cell.table.encode()), repeat)
        order = np.random.default_rng(seed).permutation(len(table.labels))
        parts = np.array_split(order, self.plan.folds)
        users = np.concatenate([part for place, part in enumerate(parts) if place != fold])
        found = score(
            Run(cell.task, cell.arm, table, users, (*seed, fold)).trained(), table, parts[fold]
        )
        return found.accuracy, found.balanced


class Counted(Campaign):
    """A campaign that trains nothing: it counts the cells that are asked for."""

    def __init__(self, plan: Plan, tables: Mapping[str, Examples]) -> None:
        self.plan, self.tables, self.seed = plan, tables, 0
        self.count = 0

    def result(self, table: str, task: Task, arm: Arm, repeats: Iterable[int]) -> Result:
        """Count, and return chances of one half."""
        self.count += 1
        halves = np.full((len(tuple(repeats)), self.plan.folds), 0.5)
        return Result(halves, halves)


def campaign_of(
    plan: Plan,
    tables: Mapping[str, Examples],
    seed: int,
    out: Path,
    advance: Callable[[], None] = lambda: None,
) -> Campaign:
    """Return the campaign whose journal is in a folder, made if need be."""
    journal = Journal(out / "fedsel-cells.jsonl", {"seed": seed, "folds": plan.folds})
    return Campaign(plan, tables, seed, journal, advance)


def tables_of(plan: Plan, folder: DataFolder | None) -> dict[str, Examples]:
    """Read or draw the tables of a plan.

    Raises:
        ConfigurationError, DataError: a table is unknown or cannot be read.
    """
    return {name: load(name, folder) for name in plan.tables}


def needs_files(plan: Plan) -> bool:
    """Say whether a table of the plan is read from files."""
    return any(name in LOADERS for name in plan.tables)
