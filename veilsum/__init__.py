"""Secure aggregation with distributed differential privacy: what most programs need of it.

Each is imported when it is first used. The packages below (`secagg`, `dp`, `sketch`, `protocol`,
`simulations`) have more; importing this one makes sure that they are ours.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from veilsum.ownership import ForeignPackageError, check_packages

if TYPE_CHECKING:
    from dp import Ledger
    from protocol import (
        ClientPolicy,
        Independent,
        OneShot,
        Pairwise,
        PrivacyGoal,
        PrivateTraining,
        RealAggregator,
        RoundClient,
        TrainingPlan,
        Validated,
        client_policy,
    )
    from secagg import ClientSession, Identity, ServerSession
    from sketch.controllers import FixedRate
    from veilsum.mean import private_mean
    from veilsum.statistics import (
        private_evaluation,
        private_histogram,
        private_quantile,
        private_statistics,
        private_top,
    )
    from veilsum.training import private_training

__version__ = "0.2.0.dev5"

__all__ = [
    "ClientPolicy",
    "ClientSession",
    "FixedRate",
    "ForeignPackageError",
    "Identity",
    "Independent",
    "Ledger",
    "OneShot",
    "Pairwise",
    "PrivacyGoal",
    "PrivateTraining",
    "RealAggregator",
    "RoundClient",
    "ServerSession",
    "TrainingPlan",
    "Validated",
    "client_policy",
    "private_evaluation",
    "private_histogram",
    "private_mean",
    "private_quantile",
    "private_statistics",
    "private_top",
    "private_training",
]

_HOMES: Final = {
    "ClientPolicy": "protocol",
    "ClientSession": "secagg",
    "FixedRate": "sketch.controllers",
    "Identity": "secagg",
    "Independent": "protocol",
    "Ledger": "dp",
    "OneShot": "protocol",
    "Validated": "protocol",
    "Pairwise": "protocol",
    "PrivacyGoal": "protocol",
    "PrivateTraining": "protocol",
    "RealAggregator": "protocol",
    "RoundClient": "protocol",
    "ServerSession": "secagg",
    "TrainingPlan": "protocol",
    "client_policy": "protocol",
    "private_evaluation": "veilsum.statistics",
    "private_histogram": "veilsum.statistics",
    "private_mean": "veilsum.mean",
    "private_quantile": "veilsum.statistics",
    "private_statistics": "veilsum.statistics",
    "private_top": "veilsum.statistics",
    "private_training": "veilsum.training",
}

check_packages()


if not TYPE_CHECKING:  # else any name would pass for one of ours

    def __getattr__(name: str) -> object:
        if name == "flower":
            return import_module("veilsum.flower")
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(home), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
