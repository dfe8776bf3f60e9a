"""The label from the gradient of the last layer.

With softmax cross entropy dL/db = p - y, p the predicted probabilities and y the label's unit
vector: of one example only the label's entry is negative. Over several examples the smallest entry
is the label that occurs most, as long as the model does not know better.

Source: Zhao, Mopuri and Bilen 2020 (arXiv 2001.02610), section 3.
"""

from __future__ import annotations

from simulations.audits.base import Floats


def leaked_label(bias: Floats) -> int:
    """Return the label that dL/db float64[classes] of the last layer speaks for."""
    return int(bias.argmin())
