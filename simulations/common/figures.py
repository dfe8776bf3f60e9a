"""Colours and sizes that all plots share.

The colours are those of Okabe and Ito, told apart with any colour vision; curves also differ in
marker and line style.

Source: Okabe and Ito 2008, "Color Universal Design".
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE: Final = "#0072B2"
ORANGE: Final = "#D55E00"
GREEN: Final = "#009E73"
PINK: Final = "#CC79A7"
AMBER: Final = "#E69F00"
SKY: Final = "#56B4E9"
GREY: Final = "#5F5F5F"

WIDTH_PIXELS: Final = 900
DOTS_PER_INCH: Final = 100
"""Resolution of plots in files."""


def png(figure: Figure) -> bytes:
    """Return a figure as a file, the same for the same figure."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()
