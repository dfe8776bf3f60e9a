"""Runs in TensorBoard, MLflow, and Weights & Biases: each a callback of a few lines.

Each of these is imported when its tracker is made, so that one that is missing is noticed before
anything runs. Where the figures go is for its own settings to say, such as MLFLOW_TRACKING_URI or
WANDB_MODE. A run that was interrupted goes on as the same run.
"""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from protocol.errors import ConfigurationError
from simulations.common.files import write_whole
from simulations.learning.configuration import RunConfig
from simulations.learning.records import Record, RunSummary, flat
from simulations.learning.run.callbacks import RunCallback

NAMES: Final = "trackers.json"
"""In the folder of a run: what it is called elsewhere."""


class TensorBoard(RunCallback):
    """Writes event files to `tensorboard` in the run's folder: `tensorboard --logdir FOLDER`."""

    def __init__(self) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._open = SummaryWriter

    def start(self, config: RunConfig, folder: Path, earlier: Sequence[Record]) -> None:
        """Write all rounds anew; what an earlier call wrote is hidden."""
        del config
        self._writer = self._open(str(folder / "tensorboard"), purge_step=1)
        for record in earlier:
            self.round(record)

    def round(self, record: Record) -> None:
        """Write a scalar for each figure, in groups such as `stages`."""
        for name, value in figures(record).items():
            self._writer.add_scalar(name.replace(".", "/"), value, record["round"])
        self._writer.flush()

    def end(self, summary: RunSummary | None) -> None:
        """Close the file."""
        self._writer.close()


class MLflow(RunCallback):
    """Logs parameters, and metrics by round."""

    def __init__(self) -> None:
        import mlflow

        self._mlflow = mlflow

    def start(self, config: RunConfig, folder: Path, earlier: Sequence[Record]) -> None:
        """Begin a run, or go on with the one that an earlier call began."""
        known = remembered(folder).get("mlflow")
        # Nested, so that a run of the caller's own stays what it is.
        run = self._mlflow.start_run(run_id=known, run_name=folder.resolve().name, nested=True)
        remember(folder, mlflow=run.info.run_id)
        if known is None:
            self._mlflow.log_params(flat(config.model_dump(exclude_none=True)))
        done = run.data.metrics.get("round", 0)
        for record in earlier:
            if record["round"] > done:
                self.round(record)

    def round(self, record: Record) -> None:
        """Log a metric for each figure."""
        self._mlflow.log_metrics(figures(record), step=record["round"])

    def end(self, summary: RunSummary | None) -> None:
        """End the run; one that did not come to its end counts as killed."""
        self._mlflow.end_run("KILLED" if summary is None else "FINISHED")


class WeightsAndBiases(RunCallback):
    """Logs the configuration, and figures by round."""

    def __init__(self) -> None:
        import wandb

        self._init = wandb.init

    def start(self, config: RunConfig, folder: Path, earlier: Sequence[Record]) -> None:
        """Begin a run, or go on with the one that an earlier call began."""
        known = remembered(folder).get("wandb", secrets.token_hex(4))
        settings = config.model_dump(exclude_none=True)
        name = folder.resolve().name
        self._run = self._init(id=known, name=name, resume="allow", config=settings)
        remember(folder, wandb=known)
        for record in earlier:
            if record["round"] >= self._run.step:
                self.round(record)

    def round(self, record: Record) -> None:
        """Log all figures as one step."""
        self._run.log(figures(record), step=record["round"])

    def end(self, summary: RunSummary | None) -> None:
        """Finish the run; one that did not come to its end counts as failed."""
        self._run.finish(exit_code=int(summary is None))


TRACKERS: Final[Mapping[str, Callable[[], RunCallback]]] = {
    "tensorboard": TensorBoard,
    "mlflow": MLflow,
    "wandb": WeightsAndBiases,
}


def tracker(name: str) -> RunCallback:
    """Make a tracker by its name.

    Raises:
        ConfigurationError: there is none of this name.
        ImportError: it needs a package that is not installed.
    """
    if name not in TRACKERS:
        raise ConfigurationError("log", f"value {name!r}", f"one of {', '.join(TRACKERS)}")
    return TRACKERS[name]()


def figures(record: Record) -> dict[str, float]:
    """The finite numbers of a record, by name: what can be drawn."""
    return {
        name: float(value)
        for name, value in flat(record).items()
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    }


def remembered(folder: Path) -> dict[str, str]:
    """What trackers call the run of a folder, by tracker."""
    path = folder / NAMES
    found: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
    return found


def remember(folder: Path, **name: str) -> None:
    """Keep what a tracker calls the run of a folder."""
    write_whole(folder / NAMES, json.dumps(remembered(folder) | name) + "\n")
