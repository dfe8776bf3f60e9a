"""What the packages export, and what they must not import."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import sketch
import sketch.controllers

EXPORTED = {
    sketch: {
        "DEFAULT_ROWS",
        "CountMeanSketch",
        "Identity",
        "LinearSketch",
        "PublicSeed",
        "Rotation",
        "SketchKind",
        "SketchSpec",
        "block_length",
        "compression_error",
        "count_mean_error",
        "fixed_point_relative_std",
        "flat_bound",
        "noise_error",
        "norm_estimate_variance",
        "size_for_error_ratio",
        "sketched_norm_variance",
        "spec_for_size",
    },
    sketch.controllers: {
        "AdaptNorm",
        "Controller",
        "ControllerState",
        "Decision",
        "FixedRate",
        "Rationale",
        "ReleasedStats",
    },
}
SOURCES = sorted(Path(sketch.__file__).parent.rglob("*.py"))
ALLOWED = {
    "__future__",
    "collections",
    "cryptography",
    "dataclasses",
    "enum",
    "math",
    "numba",
    "numpy",
    "sketch",
    "struct",
    "typing",
}


@pytest.mark.parametrize("package", EXPORTED, ids=lambda package: package.__name__)
def test_exports(package: object) -> None:
    assert set(package.__all__) == EXPORTED[package]  # type: ignore[attr-defined, index]
    assert all(hasattr(package, name) for name in EXPORTED[package])  # type: ignore[index]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_imports(path: Path) -> None:
    tree = ast.parse(path.read_text())
    names = {a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in names} <= ALLOWED
    assert "np.random" not in path.read_text()


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_kernels_are_kept_apart(path: Path) -> None:
    if path.name not in ("_kernels.py", "_hadamard.py"):
        assert "numba" not in path.read_text()
