"""Specs: sizes, canonical bytes, and the rule from a wanted size to a spec."""

from __future__ import annotations

import dataclasses
import math
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sketch import (
    CountMeanSketch,
    CountMedianSketch,
    NoSketch,
    Probe,
    PublicSeed,
    SketchKind,
    SketchSpec,
    median_for_size,
    spec_for_size,
)
from sketch.hashing import MAX_COLUMNS, MAX_ROWS
from sketch.spec import SPEC_BYTES

SEED = PublicSeed(bytes(32))
SHARES = st.floats(0.0, 1.0, exclude_min=True, exclude_max=True)
PROBES = st.none() | st.builds(Probe, st.integers(1, MAX_COLUMNS), SHARES)
DIMENSIONS = st.integers(1, 2**63 - 1)
COLUMNS = st.integers(1, MAX_COLUMNS)


@st.composite
def median_specs(draw: st.DrawFn) -> SketchSpec:
    """Specs of medians: an odd number of copies, all of whose rows have an index."""
    copies = 2 * draw(st.integers(1, 2**31 - 2)) + 1
    rows = draw(st.integers(1, MAX_ROWS // copies))
    sizes = (draw(DIMENSIONS), rows, draw(COLUMNS), copies)
    return SketchSpec(SketchKind.COUNT_MEDIAN, *sizes, draw(PROBES))


SPECS = st.one_of(
    st.builds(SketchSpec.identity, DIMENSIONS, PROBES),
    st.builds(
        SketchSpec,
        st.just(SketchKind.COUNT_MEAN),
        DIMENSIONS,
        st.integers(1, MAX_ROWS),
        COLUMNS,
        probe=PROBES,
    ),
    median_specs(),
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
        assert isinstance(SketchSpec.identity(8).build(SEED), NoSketch)

    def test_builds_a_median(self) -> None:
        built = SketchSpec(SketchKind.COUNT_MEDIAN, 100, 5, 2, 3).build(SEED)
        assert isinstance(built, CountMedianSketch)
        sizes = (built.dimension, built.rows, built.columns, built.copies)
        assert sizes == (100, 5, 2, 3)

    def test_both_sketches_are_counted(self) -> None:
        spec = SketchSpec(SketchKind.COUNT_MEDIAN, 1000, 5, 4, 3, Probe(40, 0.36))
        assert (spec.main_size, spec.size, spec.rate) == (60, 100, 10.0)
        assert spec.main_weight == pytest.approx(0.8)
        assert SketchSpec.identity(10, Probe(10)).rate == 0.5
        assert SketchSpec.identity(10).main_weight == 1.0

    def test_split_without_a_probe(self) -> None:
        sent = np.arange(6.0)
        main, second = SketchSpec(SketchKind.COUNT_MEAN, 10, 2, 3).split(sent)
        assert second is None
        np.testing.assert_array_equal(main, sent)

    def test_split_weighs_back(self) -> None:
        spec = SketchSpec(SketchKind.COUNT_MEAN, 10, 2, 3, probe=Probe(2, 0.36))
        main, second = spec.split(np.ones(8))
        np.testing.assert_allclose(main, np.full(6, 1 / 0.8))
        assert second is not None
        np.testing.assert_allclose(second, np.full(2, 1 / 0.6))

    def test_split_checks_its_input(self) -> None:
        spec = SketchSpec.identity(3, Probe(2))
        with pytest.raises(ValueError, match=r"sent must have shape \(5,\), not \(3,\)"):
            spec.split(np.zeros(3))
        with pytest.raises(TypeError, match="sent must have dtype float64"):
            spec.split(np.zeros(5, dtype=np.float32))  # type: ignore[arg-type]

    def test_is_frozen(self) -> None:
        with pytest.raises(dataclasses.FrozenInstanceError):
            SketchSpec.identity(7).rows = 2  # type: ignore[misc]


class TestBytes:
    def test_layout(self) -> None:
        data = SketchSpec(SketchKind.COUNT_MEAN, 0x0102, 3, 4).encode_bytes()
        sizes = "0201" + "00" * 6 + "03" + "00" * 7 + "04" + "00" * 7
        assert data.hex() == "0201" + sizes + "01" + "00" * 7 + "00" * 16

    def test_layout_of_copies_and_probe(self) -> None:
        spec = SketchSpec(SketchKind.COUNT_MEDIAN, 9, 3, 4, 5, Probe(6, 0.25))
        sizes = "".join(f"{number:02x}" + "00" * 7 for number in (9, 3, 4, 5, 6))
        assert spec.encode_bytes().hex() == "0202" + sizes + "000000000000d03f"

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
        grid += [
            SketchSpec(SketchKind.COUNT_MEDIAN, d, 2, 3, m, probe)
            for d in (1, 2)
            for m in (3, 5)
            for probe in (None, Probe(1), Probe(2), Probe(1, 0.2))
        ]
        assert len({spec.encode_bytes() for spec in grid}) == len(grid)

    @given(
        st.one_of(
            st.binary(max_size=2 * SPEC_BYTES),
            # Version, kind, small numbers and a share: these are often good, and often nearly.
            st.builds(
                lambda kind, numbers, share: struct.pack("<BBQQQQQd", 2, kind, *numbers, share),
                st.integers(0, 3),
                st.tuples(*[st.integers(0, 4)] * 5),
                st.sampled_from([0.0, -0.0, 0.25, 1.0, -0.5, math.nan, math.inf, 5e-324]),
            ),
        )
    )
    def test_any_bytes_are_read_back_or_refused(self, data: bytes) -> None:
        try:
            spec = SketchSpec.decode_bytes(data)
        except ValueError:
            return
        assert spec.encode_bytes() == data

    @pytest.mark.parametrize(
        "change", ["short", "long", "version", "kind", "copies", "zero", "share", "size"]
    )
    def test_refusals(self, change: str) -> None:
        data = SketchSpec.identity(7).encode_bytes()
        broken = {
            "short": data[:-1],
            "long": data + b"\0",
            "version": b"\x01" + data[1:],
            "kind": data[:1] + b"\x09" + data[2:],
            "copies": data[:26] + b"\x03" + data[27:],
            "zero": data[:-1] + b"\x80",
            "share": data[:-8] + struct.pack("<d", 0.5),
            "size": data[:34] + b"\x05" + data[35:],
        }[change]
        with pytest.raises(ValueError, match=r"must be|not a valid SketchKind"):
            SketchSpec.decode_bytes(broken)


class TestMedianForSize:
    @given(st.integers(1, 10**6), st.integers(1, 10**6), st.integers(1, 5), st.integers(1, 40))
    def test_rule(self, dimension: int, size: int, half: int, rows: int) -> None:
        copies = 2 * half + 1
        spec = median_for_size(dimension, size, copies, rows)
        if spec.kind is SketchKind.IDENTITY:
            assert spec == SketchSpec.identity(dimension)
            assert max(size, copies * rows) >= dimension
        else:
            assert (spec.kind, spec.copies) == (SketchKind.COUNT_MEDIAN, copies)
            assert spec.rows == rows
            assert spec.size < dimension
            assert spec.size <= max(size, copies * rows)
            assert spec.size > size - copies * rows

    def test_examples(self) -> None:
        expected = SketchSpec(SketchKind.COUNT_MEDIAN, 10**6, 5, 506, 3)
        assert median_for_size(10**6, 7600, 3, 5) == expected
        assert median_for_size(100, 10, 7, 15) == SketchSpec.identity(100)
        assert median_for_size(100, 100, 3, 5) == SketchSpec.identity(100)
        probed = median_for_size(100, 50, 3, 5, Probe(4))
        assert (probed.main_size, probed.size) == (45, 49)


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

    def test_a_probe_is_sent_beside(self) -> None:
        probe = Probe(200, 0.3)
        assert spec_for_size(10**6, 7600, probe=probe) == SketchSpec(
            SketchKind.COUNT_MEAN, 10**6, 15, 506, probe=probe
        )
        assert spec_for_size(10, 10, probe=probe) == SketchSpec.identity(10, probe)

    def test_a_size_is_kept_by_its_own_spec(self) -> None:
        for size in range(1, 200):
            spec = spec_for_size(1000, size)
            assert spec_for_size(1000, spec.size) == spec

    def test_numpy_integers_become_plain(self) -> None:
        spec = spec_for_size(np.int64(1000), np.int64(100))  # type: ignore[arg-type]
        assert type(spec.dimension) is int
        assert type(spec.columns) is int
