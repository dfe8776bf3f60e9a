"""Modular wrap-around (A19): sums that do not fit the field come out wrong.

The largest sums there are: every update is on the clip in one and the same rotated coordinate, so
that all values before noise add up. Half of the rounds push upwards, the others downwards.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np

from protocol import Pipeline, RoundSetup
from protocol.schemes.pairwise import pairwise_setup
from secagg import CapacityError, FieldVector, PrimeField, centre, lift
from secagg.field import add_into
from simulations.audits.base import (
    Floats,
    Integers,
    derived_bytes,
    derived_seed,
    identities_of,
    noise_seed,
    public_keys,
)
from simulations.audits.paths import PathSettings
from simulations.threats.attack import Attack, Effort, Findings, rate, refusal
from simulations.threats.rounds.announced import plain_parameters
from simulations.threats.rounds.parties import opened_sum, trusting_participant
from simulations.threats.rounds.released import GOAL, LENGTH, on_grid
from sketch import SketchSpec

SETTINGS: Final = PathSettings(
    SketchSpec.identity(LENGTH),
    GOAL,
    cohort=8,
    tolerated_dropouts=0,
    tolerated_colluders=0,
    exact_noise=False,
)
LINF_BOUND: Final = 128
"""Eight clients that agree reach 1024: no more fits a field of eleven bits, and noise comes on
top."""
COINS: Final = 64


@dataclass(frozen=True)
class ExtremeRounds:
    """Rounds of the largest sums."""

    seed: int

    @cached_property
    def setup(self) -> RoundSetup:
        """The product's round, in the smallest field that its capacity proof allows."""
        parameters = plain_parameters(
            derived_bytes(self.seed, "public"),
            COINS,
            length=LENGTH,
            scale=2.0 * LINF_BOUND,
            linf_bound=LINF_BOUND,
        )
        plan = replace(SETTINGS.plan, wrap_probability=0.0)
        keys = public_keys(identities_of(self.seed, SETTINGS.cohort))
        return pairwise_setup(plan, parameters, keys, bytes(16), 0)

    def update(self, number: int) -> Floats:
        """float64[d]: on the clip, and beyond the bound of the one coordinate that it is in."""
        pushed = np.zeros(LENGTH, np.int64)
        pushed[number % LENGTH] = 2 * LINF_BOUND * (-1) ** (number // LENGTH)
        return on_grid(self.setup.parameters, pushed)

    def integers(self, number: int) -> Integers:
        """int64[n, L]: what the clients of one round put behind their masks."""
        update, cohort = self.update(number), self.setup.context.size
        pipeline = Pipeline(self.setup)
        seeds = (noise_seed(self.seed, "wrap", number, index) for index in range(cohort))
        return np.stack([centre(pipeline.encode(update, seed)) for seed in seeds])

    def in_field(self, integers: Integers, bits: int) -> Integers:
        """int64[L]: what a field of so many bits makes of their sum."""
        field = PrimeField(bits)
        total = field.zeros(integers.shape[1])
        for row in integers:
            add_into(total, lift(row, field))
        return centre(FieldVector(field, total))

    def in_real_round(self, number: int) -> bool:
        """Whether the product's clients and server get the right sum of a round."""
        people = {}
        for index, identity in enumerate(identities_of(self.seed, self.setup.context.size)):
            noise = noise_seed(self.seed, "wrap", number, index)
            people[index] = trusting_participant(self.setup, identity, self.update(number), noise)
        total = centre(opened_sum(self.setup.context, people).vector)
        return bool(np.array_equal(total, self.integers(number).sum(axis=0)))

    def smaller(self, bits: int) -> RoundSetup:
        """The same round announced with another field; `CapacityError` if it is too small."""
        return RoundSetup(replace(self.setup.context, bits=bits), self.setup.parameters)


MISSING: Final = (1, 2, 3)
"""Bits by which the fields of the twins are too small."""


def wrap_around(effort: Effort, seed: int) -> Findings:
    """A19: count sums that come out wrong in fields that are too small."""
    rounds = effort.choose(200, 5000)
    extreme = ExtremeRounds(derived_seed(seed, "rounds"))
    bits = extreme.setup.context.bits
    fields = (bits, *(bits - missing for missing in MISSING))
    wrong = dict.fromkeys(fields, 0)
    for number in range(rounds):
        integers = extreme.integers(number)
        exact = integers.sum(axis=0)
        for field in fields:
            wrong[field] += not np.array_equal(extreme.in_field(integers, field), exact)
    real_rounds = effort.choose(2, 20)
    wrong_real = sum(not extreme.in_real_round(number) for number in range(real_rounds))
    refused = {field: _refused(extreme, field) for field in fields[1:]}
    announced = sum(not reason for reason in refused.values())
    found = rate(wrong[bits] + wrong_real, rounds + real_rounds)
    return Findings(
        {
            **found,
            "succeeded": bool(found["succeeded"]) or announced > 0,
            "bits": bits,
            "with_cryptography": real_rounds,
            "refused_with": "; ".join(f"{field} bits: {why}" for field, why in refused.items()),
        },
        {
            **rate(wrong[bits - MISSING[0]], rounds),
            "bits": bits - MISSING[0],
            **{f"wrong_sums_at_{field}_bits": wrong[field] for field in fields[1:]},
        },
    )


def _refused(extreme: ExtremeRounds, bits: int) -> str:
    """How the product refuses to set up the round in such a field; empty if it does not."""
    try:
        extreme.smaller(bits)
    except CapacityError as error:
        return refusal(error)
    return ""


ATTACKS: Final = (
    Attack(
        id="A19",
        promise="P7",
        name="field overflow",
        title="No sum wraps around, whatever clients put in within their bounds",
        says="lets honest inputs add up beyond the prime",
        stopped_by="the capacity proof when a round is set up",
        run=wrap_around,
    ),
)
