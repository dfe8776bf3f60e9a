"""Joins secagg, dp and sketch into rounds; still without sockets, threads or clocks."""

# First, as it sees that all packages below are ours.
import veilsum.compiled  # noqa: F401
from protocol.errors import ConfigurationError, PolicyError
from protocol.exchange.aggregators import Aggregator, IdealAggregator, RealAggregator
from protocol.exchange.in_memory import MemoryRound
from protocol.exchange.remote import RemoteAggregator, RemoteClient
from protocol.exchange.stages import RoundOutcome
from protocol.goal import PrivacyGoal
from protocol.noise.noise import Independent, Returned
from protocol.planning.deployment import DeploymentPlan, plan_deployment
from protocol.planning.policies import client_policy
from protocol.planning.training_plan import TrainingPlan
from protocol.round.clauses import PairwiseClauses, ReturnedClauses
from protocol.round.client import RoundClient
from protocol.round.committee_policy import CommitteePolicy
from protocol.round.history import ClientHistory
from protocol.round.losses import Dropouts, Stage
from protocol.round.parameters import RoundParameters
from protocol.round.pipeline import Pipeline
from protocol.round.policy import ClientPolicy
from protocol.round.setup import RoundSetup
from protocol.round.stored_history import StoredHistory
from protocol.schemes import OneShot, Pairwise, Validated
from protocol.schemes.committee import Drawn, Everyone, Named
from protocol.training.private import PrivateTraining, RoundResult

__part_of__ = "veilsum"

__all__ = [
    "Aggregator",
    "ClientHistory",
    "ClientPolicy",
    "CommitteePolicy",
    "ConfigurationError",
    "DeploymentPlan",
    "Drawn",
    "Dropouts",
    "Everyone",
    "IdealAggregator",
    "Independent",
    "MemoryRound",
    "Named",
    "OneShot",
    "Pairwise",
    "PairwiseClauses",
    "Pipeline",
    "PolicyError",
    "PrivacyGoal",
    "PrivateTraining",
    "RealAggregator",
    "RemoteAggregator",
    "RemoteClient",
    "Returned",
    "ReturnedClauses",
    "RoundClient",
    "RoundOutcome",
    "RoundParameters",
    "RoundResult",
    "RoundSetup",
    "Stage",
    "StoredHistory",
    "TrainingPlan",
    "Validated",
    "client_policy",
    "plan_deployment",
]
