"""Names, shapes and places of a model's layers."""

from __future__ import annotations

from sketch import LayerShapes

LAYERS = LayerShapes(
    (("conv", (4, 3, 2, 2)), ("bias", (4,)), ("dense", (5, 6)), ("scale", ()), ("row", (1, 7)))
)


def test_places_and_matrices() -> None:
    assert LAYERS.names == ("conv", "bias", "dense", "scale", "row")
    assert LAYERS.sizes == (48, 4, 30, 1, 7)
    assert LAYERS.dimension == 90
    assert LAYERS.bounds == ((0, 48), (48, 52), (52, 82), (82, 83), (83, 90))
    assert LAYERS.matrices == ((4, 12), None, (5, 6), None, (1, 7))


def test_one_layer() -> None:
    flat = LayerShapes.flat(12)
    assert (flat.dimension, flat.matrices) == (12, (None,))
