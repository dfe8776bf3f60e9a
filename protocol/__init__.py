"""Joins secagg, dp and sketch into rounds; still without sockets, threads or clocks."""

from protocol.errors import ConfigurationError, PolicyError
from protocol.exchange.aggregators import Aggregator, IdealAggregator, RealAggregator
from protocol.exchange.in_memory import MemoryRound
from protocol.exchange.remote import RemoteAggregator, RemoteClient
from protocol.exchange.stages import Dropouts, RoundOutcome, Stage
from protocol.goal import PrivacyGoal
from protocol.planning.deployment import DeploymentPlan, plan_deployment
from protocol.planning.training_plan import TrainingPlan
from protocol.round.client import RoundClient
from protocol.round.history import ClientHistory
from protocol.round.parameters import RoundParameters
from protocol.round.pipeline import Pipeline
from protocol.round.policy import ClientPolicy
from protocol.round.setup import RoundSetup
from protocol.round.stored_history import StoredHistory
from protocol.training.private import PrivateTraining, RoundResult

__part_of__ = "veilsum"

__all__ = [
    "Aggregator",
    "ClientHistory",
    "ClientPolicy",
    "ConfigurationError",
    "DeploymentPlan",
    "Dropouts",
    "IdealAggregator",
    "MemoryRound",
    "Pipeline",
    "PolicyError",
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
    "plan_deployment",
]
