"""What is hashed of a model, and how an update is taken from it."""

from __future__ import annotations

import numpy as np
import pytest

from dp import clip_l2
from protocol.adapters.named_arrays import canonical, difference, is_averaged, model_digest
from secagg import ParameterError

FIRST, SECOND = np.arange(6.0).reshape(2, 3), np.ones((2, 3))
MODEL = {"a": FIRST, "b": SECOND, "count": np.asarray(3)}


@pytest.mark.parametrize(
    "other",
    [
        {"b": SECOND, "a": FIRST, "count": np.asarray(3)},
        {"a": SECOND, "b": FIRST, "count": np.asarray(3)},
        {"b": FIRST, "a": SECOND, "count": np.asarray(3)},
        {"a": FIRST, "b": SECOND, "count": np.asarray([3])},
        {"a": FIRST, "b": SECOND, "count": np.asarray(3, np.int32)},
        {"a": FIRST.reshape(3, 2), "b": SECOND, "count": np.asarray(3)},
        {"a": FIRST, "b": -SECOND, "count": np.asarray(3)},
        {"a": FIRST, "b": SECOND},
        {"a": FIRST, "b": SECOND, "count": np.asarray(3), "": np.zeros(0)},
        {"ab": FIRST, "": SECOND, "count": np.asarray(3)},
    ],
)
def test_all_that_training_may_go_by_is_in_the_digest(other: dict[str, np.ndarray]) -> None:
    assert model_digest(other) != model_digest(MODEL)


def test_what_else_training_is_given_is_in_the_digest() -> None:
    digests = [model_digest(MODEL), model_digest(MODEL, b"1"), model_digest(MODEL, b"1", b"")]
    assert len({*digests, model_digest(MODEL, b"", b"1")}) == 4


def test_layouts_of_one_model_have_one_digest_and_become_one() -> None:
    other = {
        "a": np.asfortranarray(FIRST).astype(">f8", order="K"),
        "b": np.ones((4, 3))[::2],
        "count": np.asarray(3, ">i8"),
    }
    assert model_digest(other) == model_digest(MODEL)
    shown, expected = canonical(other), canonical(MODEL)
    assert list(shown) == list(MODEL)
    for name, array in shown.items():
        assert (array.dtype, array.strides) == (expected[name].dtype, expected[name].strides)
        assert np.array_equal(array, MODEL[name]) and not np.shares_memory(array, other[name])
    # The control: as it came, a trainer could tell.
    assert other["a"].ravel("K")[1] != FIRST.ravel("K")[1]


@pytest.mark.parametrize(
    "odd", [[1.0], np.array(["x"]), np.zeros(2, [("a", "f4")]), np.array([1j])]
)
def test_only_numbers_have_a_digest(odd: list[float] | np.ndarray) -> None:
    with pytest.raises(ParameterError, match="model array 'odd'"):
        model_digest({"odd": odd})


@pytest.mark.parametrize("mask", [[True, False], [False, True], False])
def test_an_array_that_holds_more_than_its_bytes_has_no_digest(mask: list[bool] | bool) -> None:
    """Training would see the mask, and the digest would not."""
    masked = np.ma.MaskedArray([1.0, 2.0], mask)
    with pytest.raises(ParameterError, match=r"model array 'odd'.*MaskedArray"):
        model_digest({"odd": masked})


def test_masks_would_not_be_in_a_digest() -> None:
    """The control: what would be hashed of two arrays that training can tell apart is the same."""
    one, other = (np.ma.MaskedArray([1.0, 2.0], mask) for mask in ([1, 0], [0, 1]))
    assert one.sum() != other.sum() and one.data.tobytes() == other.data.tobytes()


@pytest.mark.parametrize(
    "name",
    [
        *("running_var", "module.bn1.running_mean", "blocks.0.norm.num_batches_tracked"),
        *("model/batch_normalization_1/moving_variance:0", "bn.moving_mean", "bn0_running_var"),
        *("batch_stats/BatchNorm_0/var", "params.batch_stats.norm.mean", "bn1._variance"),
    ],
)
def test_running_statistics_are_refused_by_name_unless_they_are_counted_in_integers(
    name: str,
) -> None:
    with pytest.raises(ParameterError, match=rf"{name}.*GroupNorm.*named_parameters\(\)"):
        is_averaged(name, np.ones(3, np.float16))
    assert not is_averaged(name, np.int64(3) + np.zeros(2, np.int64))


@pytest.mark.parametrize(
    "name", ["bn.weight", "running_var.weight", "prerunning_mean", "mean", "x_mean"]
)
def test_floats_of_any_other_name_are_averaged(name: str) -> None:
    assert is_averaged(name, np.ones(3, np.float16))


def taken(after: list[np.ndarray], before: list[np.ndarray]) -> np.ndarray:
    pairs = list(zip(after, before, strict=True))
    return difference(lambda: pairs, sum(each.size for each in before))


def test_a_difference_is_that_of_float64() -> None:
    before = [np.float32([[1.0, 2.0]]), np.float64([0.5]), np.asarray(7.0, np.float16)]
    after = [np.float32([[1.0 + 2**-20, -2.0]]), np.int64([3]), np.asarray(5.0, np.float32)]
    update = taken(after, before)
    assert update.dtype == np.float64
    assert update.tolist() == [2.0**-20, -4.0, 2.5, -2.0]


def test_nothing_to_train_is_nothing_changed() -> None:
    assert taken([], []).shape == (0,)


@pytest.mark.parametrize("state", ["ignore", "raise"])
@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_finite_weights_have_a_difference_of_the_right_direction(
    kind: type[np.float16 | np.float32 | np.float64], state: str
) -> None:
    most = np.finfo(kind).max
    before = [np.full(2, -most), np.asarray([1e-3, 0.0], kind)]
    after = [np.full(2, most), np.asarray([0.0, 1e-3], kind)]
    with np.errstate(all=state):
        clipped = clip_l2(taken(after, before), 2.0).values
    np.testing.assert_allclose(clipped[:2], np.sqrt(2.0), rtol=1e-12)
    # The rest is what it is: far below for the large types, and not lost for the small one.
    rest = 1e-3 / np.sqrt(2.0) / float(most)
    np.testing.assert_allclose(clipped[2:], [-rest, rest], rtol=1e-3, atol=1e-300)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_finite_stay_so(value: float) -> None:
    """The clip refuses them; nothing here makes a number of them."""
    update = taken([np.array([value, 1.0, 1.7e308])], [np.array([0.0, 0.5, -1.7e308])])
    assert not np.isfinite(update[0]) and np.isfinite(update[1])
