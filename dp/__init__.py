"""Sensitivity, integer noise and accounting.

The private path of one client is a chain of types, each of which proves the one before:
``clip_l2 -> Bounded -> quantize -> Quantized -> add_coins -> Noised``. What the server then
learned is an ``Event``; an ``Accountant`` turns events into epsilon; a ``Ledger`` makes them
durable before a result is released.

Every function and constructor here raises ``TypeError`` for an argument of the wrong type or dtype,
and ``ValueError`` for one out of range or of the wrong shape; the error names the argument and what
would be valid. Docstrings name other causes only.

This package knows nothing of networks, sketches or cryptographic protocols.
"""

from __future__ import annotations

from dp.accounting import (
    Accountant,
    DominationAccountant,
    ExactAccountant,
    FailingGaussian,
    FailureReserve,
    GaussianReference,
    LocalAccountant,
    MomentsAccountant,
    OutsiderAccountant,
    PublishedAccountant,
    Theorem1Accountant,
)
from dp.budget import Budget, replay
from dp.calibration import (
    coins_for_epsilon,
    noise_multiplier_for_epsilon,
    variance_for_epsilon,
)
from dp.clipping import Bounded, clip_l2
from dp.coin_schedule import CoinSchedule, TooManyDropoutsError
from dp.coins import Coins, add_coins
from dp.errors import (
    BudgetExceededError,
    CopiedSecretError,
    LedgerError,
    NonFiniteUpdateError,
    PrivacyError,
    RoundsUsedUpError,
    SensitivityExceededError,
    UnsupportedEventError,
)
from dp.event_kinds import Event
from dp.events import (
    Adjacency,
    Allocated,
    BinomialRelease,
    Composition,
    DiscreteGaussianRelease,
    FixedSizeSampled,
    GaussianRelease,
    LevelRelease,
    LocalRelease,
    NonPrivateRelease,
    PoissonSampled,
    SkellamRelease,
    replace_one,
)
from dp.interop import ConvertedRun, to_dp_event
from dp.keystream import NoiseSeed
from dp.ledger import Entry, Ledger
from dp.mechanisms import (
    BinomialMechanism,
    DiscreteGaussianMechanism,
    Mechanism,
    Sensitivities,
    SkellamMechanism,
)
from dp.noised import Noised
from dp.protection import FourEpsilons, four_epsilons, local_epsilons
from dp.report import EpsilonReport, epsilons
from dp.rounding import Quantized, quantize, quantized_l2_bound

__part_of__ = "veilsum"

__all__ = [
    "Accountant",
    "Adjacency",
    "Allocated",
    "BinomialMechanism",
    "BinomialRelease",
    "Bounded",
    "Budget",
    "BudgetExceededError",
    "CoinSchedule",
    "Coins",
    "Composition",
    "ConvertedRun",
    "CopiedSecretError",
    "DiscreteGaussianMechanism",
    "DiscreteGaussianRelease",
    "DominationAccountant",
    "Entry",
    "EpsilonReport",
    "Event",
    "ExactAccountant",
    "FailingGaussian",
    "FailureReserve",
    "FixedSizeSampled",
    "FourEpsilons",
    "GaussianReference",
    "GaussianRelease",
    "Ledger",
    "LedgerError",
    "LevelRelease",
    "LocalAccountant",
    "LocalRelease",
    "Mechanism",
    "MomentsAccountant",
    "NoiseSeed",
    "Noised",
    "NonFiniteUpdateError",
    "NonPrivateRelease",
    "OutsiderAccountant",
    "PoissonSampled",
    "PrivacyError",
    "PublishedAccountant",
    "Quantized",
    "RoundsUsedUpError",
    "Sensitivities",
    "SensitivityExceededError",
    "SkellamMechanism",
    "SkellamRelease",
    "Theorem1Accountant",
    "TooManyDropoutsError",
    "UnsupportedEventError",
    "add_coins",
    "clip_l2",
    "coins_for_epsilon",
    "epsilons",
    "four_epsilons",
    "local_epsilons",
    "noise_multiplier_for_epsilon",
    "quantize",
    "quantized_l2_bound",
    "replace_one",
    "replay",
    "to_dp_event",
    "variance_for_epsilon",
]
