"""Sensitivity, integer noise and accounting.

The private path of one client is a chain of types, each of which proves the one before:
``clip_l2 -> Bounded -> quantize -> Quantized -> add_coins -> Noised``. What the server then
learned is an ``Event``; an ``Accountant`` turns events into epsilon; a ``Ledger`` makes them
durable before a result is released.

This package knows nothing of networks, sketches or cryptographic protocols.
"""

from __future__ import annotations

from dp.accounting import (
    Accountant,
    DominationAccountant,
    EpsilonReport,
    ExactAccountant,
    FailingGaussian,
    FailureReserve,
    FourEpsilons,
    GaussianReference,
    LocalAccountant,
    MomentsAccountant,
    OutsiderAccountant,
    PublishedAccountant,
    Theorem1Accountant,
    effective_sigma,
    epsilons,
    four_epsilons,
    local_epsilons,
    own_noise,
)
from dp.budget import Budget, replay
from dp.calibration import (
    coins_for_epsilon,
    noise_multiplier_for_epsilon,
    variance_for_epsilon,
)
from dp.clipping import Bounded, clip_l2, l2_norm, require_finite
from dp.coin_schedule import BatchVariant, CoinSchedule, TooManyDropoutsError
from dp.coins import Coins, add_coins, noise_limit, residual_offset, sample_binomial
from dp.dropouts import add_batches, batch_noise, removed_noise
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
from dp.keystream import Keystream, NoiseSeed, Usage
from dp.ledger import Entry, Ledger
from dp.mechanisms import (
    BinomialMechanism,
    CentralGaussianMechanism,
    DiscreteGaussianMechanism,
    LevelMechanism,
    Levels,
    Mechanism,
    NoisedLevels,
    NoNoise,
    Sensitivities,
    SkellamMechanism,
    level_mse_bound,
    rotated_clip,
    rotated_level_mse_bound,
)
from dp.noised import Noise, Noised
from dp.rounding import Quantized, quantize, quantized_l2_bound, rounded_l2_bound
from dp.sampling import (
    BinomialLaw,
    DiscreteGaussianLaw,
    Law,
    RoundedGaussianLaw,
    SkellamLaw,
    sample_law,
)

__all__ = [
    "Accountant",
    "Adjacency",
    "BatchVariant",
    "BinomialLaw",
    "BinomialMechanism",
    "BinomialRelease",
    "Bounded",
    "Budget",
    "BudgetExceededError",
    "CentralGaussianMechanism",
    "CoinSchedule",
    "Coins",
    "Composition",
    "CopiedSecretError",
    "DiscreteGaussianLaw",
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
    "Keystream",
    "Law",
    "Ledger",
    "LedgerError",
    "LevelMechanism",
    "LevelRelease",
    "Levels",
    "LocalAccountant",
    "LocalRelease",
    "Mechanism",
    "MomentsAccountant",
    "NoNoise",
    "Noise",
    "NoiseSeed",
    "Noised",
    "NoisedLevels",
    "NonFiniteUpdateError",
    "NonPrivateRelease",
    "OutsiderAccountant",
    "PoissonSampled",
    "PrivacyError",
    "PublishedAccountant",
    "Quantized",
    "RoundedGaussianLaw",
    "RoundsUsedUpError",
    "Sensitivities",
    "SensitivityExceededError",
    "SkellamLaw",
    "SkellamMechanism",
    "SkellamRelease",
    "Theorem1Accountant",
    "TooManyDropoutsError",
    "UnsupportedEventError",
    "Usage",
    "add_batches",
    "add_coins",
    "batch_noise",
    "clip_l2",
    "coins_for_epsilon",
    "effective_sigma",
    "epsilons",
    "four_epsilons",
    "l2_norm",
    "level_mse_bound",
    "local_epsilons",
    "noise_limit",
    "noise_multiplier_for_epsilon",
    "own_noise",
    "quantize",
    "quantized_l2_bound",
    "removed_noise",
    "replace_one",
    "replay",
    "require_finite",
    "residual_offset",
    "rotated_clip",
    "rotated_level_mse_bound",
    "rounded_l2_bound",
    "sample_binomial",
    "sample_law",
    "variance_for_epsilon",
]
