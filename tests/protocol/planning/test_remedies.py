"""Where no noise meets a goal, the error names values that do: each is tried."""

from __future__ import annotations

import re
from typing import Any

import pytest

from protocol import PrivacyGoal
from protocol.noise.calibration import calibrate
from secagg import ParameterError
from sketch import PublicSeed, SketchSpec


def calibrated(epsilon: float, delta: float, clients: int, **others: Any) -> object:
    return calibrate(
        PrivacyGoal(epsilon, delta, 1),
        fewest_honest=clients,
        sketch=SketchSpec.identity(100),
        clip_l2=6.0,
        tolerated_dropouts=0,
        model_digest=bytes(32),
        public_seed=PublicSeed(bytes(32)),
        **others,
    )


@pytest.mark.parametrize(
    ("epsilon", "delta", "remedies"),
    [
        (1.0, 2e-3, {"error_share", "epsilon"}),  # what is set aside of delta costs more
        (1000.0, 1e-5, {"epsilon", "clients"}),  # the noise is finer than rounding
        (1e-7, 1e-5, {"epsilon"}),  # more coins than there are
    ],
)
def test_every_remedy_that_is_named_works(epsilon: float, delta: float, remedies: set[str]) -> None:
    with pytest.raises(ParameterError, match="one that noise in integers can meet") as caught:
        calibrated(epsilon, delta, 34)
    found = dict(re.findall(r"(error_share|epsilon) = ([\d.e+-]+)", caught.value.valid))
    if times := re.search(r"(\d+) times as many clients", caught.value.valid):
        calibrated(epsilon, delta, 34 * int(times[1]))
        found["clients"] = times[1]
    assert set(found) == remedies
    calibrated(float(found["epsilon"]), delta, 34)
    if "error_share" in found:
        calibrated(epsilon, delta, 34, error_share=float(found["error_share"]))
