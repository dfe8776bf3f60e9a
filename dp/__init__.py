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
    FailureReserve,
    GaussianReference,
    Theorem1Accountant,
    effective_sigma,
)
from dp.budget import Budget, replay
from dp.calibration import coins_for_epsilon, noise_multiplier_for_epsilon
from dp.clipping import Bounded, clip_l2, l2_norm, require_finite
from dp.coins import Noised, add_coins, noise_limit, residual_offset, sample_binomial
from dp.dropouts import (
    BatchVariant,
    CoinSchedule,
    TooManyDropoutsError,
    add_batches,
    batch_noise,
    removed_noise,
)
from dp.errors import (
    BudgetExceededError,
    LedgerError,
    NonFiniteUpdateError,
    PrivacyError,
    SensitivityExceededError,
    UnsupportedEventError,
)
from dp.events import (
    Adjacency,
    BinomialRelease,
    Composition,
    DiscreteGaussianRelease,
    Event,
    GaussianRelease,
    LevelRelease,
    NonPrivateRelease,
    SkellamRelease,
)
from dp.keystream import Keystream, NoiseSeed, Usage
from dp.ledger import Entry, Ledger
from dp.rounding import Quantized, quantize, quantized_l2_bound, rounded_l2_bound

__all__ = [
    "Accountant",
    "Adjacency",
    "BatchVariant",
    "BinomialRelease",
    "Bounded",
    "Budget",
    "BudgetExceededError",
    "CoinSchedule",
    "Composition",
    "DiscreteGaussianRelease",
    "DominationAccountant",
    "Entry",
    "Event",
    "FailureReserve",
    "GaussianReference",
    "GaussianRelease",
    "Keystream",
    "Ledger",
    "LedgerError",
    "LevelRelease",
    "NoiseSeed",
    "Noised",
    "NonFiniteUpdateError",
    "NonPrivateRelease",
    "PrivacyError",
    "Quantized",
    "SensitivityExceededError",
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
    "l2_norm",
    "noise_limit",
    "noise_multiplier_for_epsilon",
    "quantize",
    "quantized_l2_bound",
    "removed_noise",
    "replay",
    "require_finite",
    "residual_offset",
    "rounded_l2_bound",
    "sample_binomial",
]
