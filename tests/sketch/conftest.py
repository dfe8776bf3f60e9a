"""Helper modules of this folder are importable by their own names."""

from __future__ import annotations

import sys
from pathlib import Path

# Tests are collected in importlib mode, where a folder of tests is not on the path by itself.
_HERE = str(Path(__file__).parent)
if _HERE not in sys.path:
    sys.path.insert(0, _HERE)
