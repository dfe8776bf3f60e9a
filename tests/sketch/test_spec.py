"""Specs: sizes, canonical bytes, and the rule from a wanted size to a spec."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sketch import CountMeanSketch, Identity, PublicSeed, SketchKind, SketchSpec, spec_for_size
from sketch.spec import SPEC_BYTES

SEED = PublicSeed(bytes(32))
SPECS = st.one_of(
    st.builds(SketchSpec.identity, st.integers(1, 2**63 - 1)),
    st.builds(
        SketchSpec,
        st.just(SketchKind.COUNT_MEAN),
        st.integers(1, 2**63 - 1),
        st.integers(1, 2**32),
        st.integers(1, 2**32),
    ),
)


class TestSpec:
    def test_sizes(self) -> None:
        spec = SketchSpec(SketchKind.COUNT_MEAN, 1000, 5, 20)
        assert (spec.size, spec.rate) == (100, 10.0)
        assert (SketchSpec.identity(7).size, SketchSpec.identity(7).rate) == (7, 1.0)

    def test_builds_its_map(self) -> None:
        built = SketchSpec(SketchKind.COUNT_MEAN, 100, 5, 2).build(SEED)
        assert isinstance(built, CountMeanSketch)
        assert (built.dimension, built.rows, built.columns, built.size) == (100, 5, 2, 10)
        assert isinstance(SketchSpec.identity(8).build(SEED), Identity)

    def test_is_frozen(self) -> None:
        with pytest.raises(dataclasses.FrozenInstanceError):
            SketchSpec.identity(7).rows = 2  # type: ignore[misc]

    @pytest.mark.parametrize(("rows", "columns"), [(7, 1), (2, 7), (1, 6)])
    def test_identity_has_one_form(self, rows: int, columns: int) -> None:
        with pytest.raises(ValueError, match="of an identity must be 1 and its dimension"):
            SketchSpec(SketchKind.IDENTITY, 7, rows, columns)

    def test_kind_is_enumerated(self) -> None:
        with pytest.raises(TypeError, match="kind must be a SketchKind, not int"):
            SketchSpec(1, 7, 1, 1)  # type: ignore[arg-type]

    @pytest.mark.parametrize("sizes", [(0, 1, 1), (5, 0, 1), (5, 1, 0), (5, 1, 2**32 + 1)])
    def test_ranges(self, sizes: tuple[int, int, int]) -> None:
        with pytest.raises(ValueError, match="must be"):
            SketchSpec(SketchKind.COUNT_MEAN, *sizes)


class TestBytes:
    def test_layout(self) -> None:
        data = SketchSpec(SketchKind.COUNT_MEAN, 0x0102, 3, 4).encode_bytes()
        assert data.hex() == "0101" + "0201" + "00" * 6 + "03" + "00" * 7 + "04" + "00" * 7

    @given(SPECS)
    def test_round_trip(self, spec: SketchSpec) -> None:
        assert SketchSpec.decode_bytes(spec.encode_bytes()) == spec

    @given(SPECS, SPECS)
    def test_injective(self, a: SketchSpec, b: SketchSpec) -> None:
        assert (a.encode_bytes() == b.encode_bytes()) == (a == b)

    def test_injective_on_neighbours(self) -> None:
        grid = [
            SketchSpec(SketchKind.COUNT_MEAN, d, r, c)
            for d in range(1, 9)
            for r in range(1, 9)
            for c in range(1, 9)
        ]
        grid += [SketchSpec.identity(d) for d in range(1, 9)]
        assert len({spec.encode_bytes() for spec in grid}) == len(grid)

    @given(st.binary(max_size=2 * SPEC_BYTES))
    def test_any_bytes_are_read_back_or_refused(self, data: bytes) -> None:
        try:
            spec = SketchSpec.decode_bytes(data)
        except ValueError:
            return
        assert spec.encode_bytes() == data

    @pytest.mark.parametrize("change", ["short", "long", "version", "kind"])
    def test_refusals(self, change: str) -> None:
        data = SketchSpec.identity(7).encode_bytes()
        broken = {
            "short": data[:-1],
            "long": data + b"\0",
            "version": b"\x02" + data[1:],
            "kind": data[:1] + b"\x09" + data[2:],
        }[change]
        with pytest.raises(ValueError, match=r"must be|not a valid SketchKind"):
            SketchSpec.decode_bytes(broken)


class TestSpecForSize:
    @given(st.integers(1, 10**7), st.integers(1, 2 * 10**7), st.integers(1, 40))
    def test_rule(self, dimension: int, size: int, rows: int) -> None:
        spec = spec_for_size(dimension, size, rows)
        assert spec.dimension == dimension
        assert spec.size <= dimension
        if spec.kind is SketchKind.IDENTITY:
            assert size >= dimension or rows >= dimension
        else:
            assert spec.rows == rows
            assert spec.size <= max(size, rows)
            assert spec.size > size - rows

    def test_examples(self) -> None:
        assert spec_for_size(10**6, 7600) == SketchSpec(SketchKind.COUNT_MEAN, 10**6, 15, 506)
        assert spec_for_size(10**6, 1) == SketchSpec(SketchKind.COUNT_MEAN, 10**6, 15, 1)
        assert spec_for_size(10**6, 10**6) == SketchSpec.identity(10**6)
        assert spec_for_size(10**6, 10**9) == SketchSpec.identity(10**6)
        assert spec_for_size(10, 3) == SketchSpec.identity(10)

    def test_a_size_is_kept_by_its_own_spec(self) -> None:
        for size in range(1, 200):
            spec = spec_for_size(1000, size)
            assert spec_for_size(1000, spec.size) == spec

    @pytest.mark.parametrize("arguments", [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
    def test_ranges(self, arguments: tuple[int, int, int]) -> None:
        with pytest.raises(ValueError, match="must be"):
            spec_for_size(*arguments)

    def test_numpy_integers_become_plain(self) -> None:
        spec = spec_for_size(np.int64(1000), np.int64(100))  # type: ignore[arg-type]
        assert type(spec.dimension) is int
        assert type(spec.columns) is int
