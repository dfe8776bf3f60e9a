"""Modular wrap-around (A19): sums that do not fit the field come out wrong."""

from __future__ import annotations

from typing import Final

import numpy as np

from secagg import CapacityError
from simulations.audits.base import derived_seed
from simulations.threats.attack import Attack, Effort, Findings, rate, refusal
from simulations.threats.rounds.wrapping import ExtremeRounds

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
        name="sum too large for the field",
        title="No sum wraps around, whatever clients put in within their bounds",
        says="lets honest inputs add up beyond the prime",
        stopped_by="the capacity proof when a round is set up",
        run=wrap_around,
    ),
)
