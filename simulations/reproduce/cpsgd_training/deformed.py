"""Pictures of digits deformed at random, so that no two clients hold the same one.

Each is turned, stretched, sheared and shifted, and its points are moved by a smooth random field,
as elastic as a hand is. The 25 million digits of infinite MNIST come about in this way; ours follow
the same idea with sizes of our own, as those are in its program only.

Source: Loosli, Canu and Bottou 2007, "Training invariant support vector machines using selective
sampling", Section 3; Simard, Steinkraus and Platt 2003 for elastic fields.
"""

from __future__ import annotations

import math
from typing import Final

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample, interpolate

TURN: Final = math.radians(15.0)  # the most that a digit is turned, in either direction
STRETCH: Final = 0.1  # of either axis, the most
SHEAR: Final = 0.1
SHIFT: Final = 2.0 * 2.0 / 28.0  # two pixels of MNIST, in halves of a picture's side
ELASTIC: Final = 1.2 / 28.0  # standard deviation of the field at its knots, 0.6 pixels
KNOTS: Final = 7  # of the field, along a side; cubic in between


def deformed(pictures: Tensor, generator: torch.Generator) -> Tensor:
    """Return float32[n, h, w], every picture deformed in its own way; 0 comes in from outside.

    Pictures and generator are on one device; draws differ from one kind of device to another.
    """
    (n, height, width), where = pictures.shape, pictures.device
    uniform = torch.rand((6, n), generator=generator, device=where).mul_(2.0).sub_(1.0)
    turn, across, along, shear, x, y = uniform
    field = torch.randn((n, 2, KNOTS, KNOTS), generator=generator, device=where).mul_(ELASTIC)
    cos, sin = torch.cos(TURN * turn), torch.sin(TURN * turn)
    across, along = 1.0 + STRETCH * across, 1.0 + STRETCH * along
    lines = (
        torch.stack([across * cos, SHEAR * shear - along * sin, SHIFT * x], dim=1),
        torch.stack([across * sin, along * cos, SHIFT * y], dim=1),
    )
    grid = affine_grid(torch.stack(lines, dim=1), [n, 1, height, width], align_corners=False)
    smooth = interpolate(field, (height, width), mode="bicubic", align_corners=True)
    grid += smooth.movedim(1, -1)
    return grid_sample(pictures.unsqueeze(1), grid, align_corners=False).squeeze(1)
