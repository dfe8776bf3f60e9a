"""Whole experiments: a configuration, a folder that survives a crash, a live view, sweeps.

What trains is imported when it is used, so that a folder can be read without torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from simulations.learning.run.callbacks import RunCallback
    from simulations.learning.run.experiment import RunResult, run_experiment
    from simulations.learning.run.folder import RunFolder
    from simulations.learning.run.trackers import tracker

__all__ = ["RunCallback", "RunFolder", "RunResult", "run_experiment", "tracker"]

_HOMES: Final = {
    "RunCallback": "callbacks",
    "RunFolder": "folder",
    "RunResult": "experiment",
    "run_experiment": "experiment",
    "tracker": "trackers",
}

if not TYPE_CHECKING:  # else any name would pass for one of ours

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
