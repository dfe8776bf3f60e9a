"""Makes the statistics and enumerated laws of the dp tests importable here too."""

from __future__ import annotations

import sys
from pathlib import Path

_DP = str(Path(__file__).parents[4] / "dp")
if _DP not in sys.path:
    sys.path.insert(0, _DP)
