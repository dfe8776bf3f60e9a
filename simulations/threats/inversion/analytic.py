"""The input of a dense layer from its gradient, by one division, and the label of the last one.

docs/attacks-on-updates.md, "How A23 works", has the derivations. For several examples the quotient
is their mean, and the smallest entry of dL/db is the label that occurs most, as long as the model
does not know better.

Source: Phong et al. 2018 (IEEE TIFS 13(5)), section 3; Geiping et al. 2020 (arXiv 2003.14053),
Proposition 3.1. Labels: Zhao, Mopuri and Bilen 2020 (arXiv 2001.02610), section 3.
"""

from __future__ import annotations

import numpy as np

from simulations.audits.base import Floats


def row_ratio(weight: Floats, bias: Floats) -> Floats:
    """The layer's input, float64[1, features], as the row with the largest bias gradient has it.

    From dL/dW float64[k, features] and dL/db float64[k]; empty if all of dL/db is zero.
    """
    row = int(np.abs(bias).argmax())
    if bias[row] == 0.0:
        return np.empty((0, weight.shape[1]))
    return np.asarray(weight[row] / bias[row])[None]


def to_pixels(values: Floats) -> Floats:
    """Undo the models' centring: values in [-1, 1] to pixels in [0, 1], cut off beyond."""
    return np.clip((values + 1.0) / 2.0, 0.0, 1.0)


def leaked_label(bias: Floats) -> int:
    """Return the label that dL/db float64[classes] of the last layer speaks for."""
    return int(bias.argmin())
