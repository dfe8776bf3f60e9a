"""Joins secagg, dp and sketch into rounds; still without sockets, threads or clocks."""

from protocol.adapters.memory import MemoryRound
from protocol.aggregators import Aggregator, IdealAggregator, RealAggregator
from protocol.calibration import PrivacyGoal, calibrate
from protocol.capacity import bits_for
from protocol.client import ClientPolicy, RoundClient
from protocol.conduct import Dropouts, RoundOutcome, Stage
from protocol.deployment import DeploymentPlan, PredictedError, plan_deployment
from protocol.errors import ConfigurationError, PolicyError
from protocol.history import ClientHistory
from protocol.parameters import RoundParameters
from protocol.pipeline import MeanRelease, Pipeline
from protocol.remote import RemoteAggregator, RemoteClient
from protocol.setup import RoundSetup
from protocol.stored_history import StoredHistory
from protocol.training import PrivateTraining, RoundResult
from protocol.training_plan import TrainingPlan

__all__ = [
    "Aggregator",
    "ClientHistory",
    "ClientPolicy",
    "ConfigurationError",
    "DeploymentPlan",
    "Dropouts",
    "IdealAggregator",
    "MeanRelease",
    "MemoryRound",
    "Pipeline",
    "PolicyError",
    "PredictedError",
    "PrivacyGoal",
    "PrivateTraining",
    "RealAggregator",
    "RemoteAggregator",
    "RemoteClient",
    "RoundClient",
    "RoundOutcome",
    "RoundParameters",
    "RoundResult",
    "RoundSetup",
    "Stage",
    "StoredHistory",
    "TrainingPlan",
    "bits_for",
    "calibrate",
    "plan_deployment",
]
