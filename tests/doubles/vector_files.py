"""The package of the vectors, tests/vectors, which is no part of the installed packages."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

VECTORS = Path(__file__).parents[1] / "vectors"


def load(name: str) -> Any:
    """A module of that package."""
    package = "veilsum_vectors"
    if package not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            package, VECTORS / "__init__.py", submodule_search_locations=[str(VECTORS)]
        )
        assert spec is not None
        assert spec.loader is not None
        sys.modules[package] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[package])
    return importlib.import_module(f"{package}.{name}")
