"""Models as named arrays: what a round hashes of them, and how an update is taken from them.

Frameworks hand a model to training as arrays by name, and in an order. A training function may go
by either, and many read arrays by position. So the order is hashed as it came: were names sorted
first, two arrays of one shape could change places for one client, which would train another model
under the digest of all others.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg import ParameterError
from secagg.tags import encode_parts

_TRAINED, _KEPT = "f", "iub"
"""Kinds of arrays, as NumPy names them: floats are averaged; integers and truth values, such as a
count of batches, stay as the server has them."""

_STATISTICS = re.compile(
    r"(^|[^a-z])(running_(mean|var)|num_batches_tracked|moving_(mean|var|variance))(:\d+)?$"
    r"|(^|[./])batch_stats[./]|\._(mean|variance)$"
)
"""Names of what BatchNorm counts beside its weights, in PyTorch, Keras, Flax and Paddle. A variance
that was noised is negative here and there, and its root is no number."""

LARGEST_DIMENSION = 1 << 30
"""Most numbers that are averaged: as many as a round can add up. A client holds eight bytes of
each, a server as well."""

_LABEL = b"veilsum/model/1"

Pairs = Callable[[], Iterable[tuple[NDArray[Any], NDArray[Any]]]]
"""Gives, each time it is called, arrays after and before training, in one and the same order."""


def model_digest(arrays: Mapping[str, NDArray[Any]], *about: bytes) -> bytes:
    """SHA-256 of a model as training sees it: order, names, types, shapes and values of its arrays.

    The layout in memory is not in it: `canonical` gives training arrays of one and the same layout.
    """
    hasher = hashlib.sha256(encode_parts(_LABEL, *about, len(arrays).to_bytes(8, "little")))
    for name, array in arrays.items():
        require_numbers(name, array)
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        add_array(hasher, name, f"{little.dtype.str} {array.shape}", little.tobytes())
    return hasher.digest()


def add_array(hasher: Any, name: str, form: str, data: bytes) -> None:
    """Feed one array to a hash, so that no two sequences of arrays give the same bytes.

    Args:
        form: type and shape; () is not (1,).
    """
    size = len(data).to_bytes(8, "little")
    hasher.update(encode_parts(b"array", name.encode(), form.encode(), size))
    hasher.update(data)


def require_numbers(name: str, array: object) -> None:
    """Raise unless something is a plain array of numbers or truth values.

    A subclass may hold more than its bytes, as a mask: two that differ would have one digest.
    """
    if (
        type(array) is not np.ndarray
        or array.dtype.kind not in _TRAINED + _KEPT
        # A wider float may be finite and its double is not: a refusal that training chooses.
        or array.dtype.itemsize > 8
    ):
        kind = array.dtype if type(array) is np.ndarray else type(array).__name__
        valid = "plain NumPy arrays of floats, integers or truth values of at most 64 bits"
        raise ParameterError(f"model array {name!r}", kind, valid)


def is_averaged(name: str, array: object) -> bool:
    """Whether an array is averaged, with noise; others stay as the server has them."""
    require_numbers(name, array)
    if np.asarray(array).dtype.kind in _KEPT:
        return False
    require_weights(name)
    return True


def dimension_of(sizes: Iterable[int]) -> int:
    """d, of the sizes of all arrays that are averaged."""
    dimension = sum(sizes)
    if not 1 <= dimension <= LARGEST_DIMENSION:
        valid = f"1 .. {LARGEST_DIMENSION}, of floating-point arrays"
        raise ParameterError("numbers that are averaged", dimension, valid)
    return dimension


def require_weights(name: str) -> None:
    """Raise unless floats of this name can bear noise: running statistics cannot."""
    if _STATISTICS.search(name.lower()):
        raise ParameterError(
            f"model array {name!r}",
            "running statistics of a normalisation layer",
            "averaged without noise, which is not private. Use GroupNorm or LayerNorm in place of "
            "BatchNorm; or send the model without these arrays (PyTorch: named_parameters() in "
            "place of state_dict()): each site, or the server, then keeps its own",
        )


def canonical(arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Copies in C order and native byte order: training sees nothing that is not in the digest."""
    return {
        name: np.array(array, array.dtype.newbyteorder("="), order="C")
        for name, array in arrays.items()
    }


def difference(pairs: Pairs, dimension: int) -> NDArray[np.float64]:
    """float64[d], what training changed, end to end; finite wherever weights are.

    Finite weights of float32 may differ by more than the largest float32, and a client that left
    for it would tell the server so. Where even float64 overflows, all is halved: the difference is
    then above 1e307, so far beyond any clip bound that half of it is clipped to the same vector.

    Args:
        pairs: of arrays of equal shapes.
    """
    update = np.empty(dimension)
    # Whatever the caller's process has set NumPy to raise: values must not decide who leaves.
    with np.errstate(all="ignore"):
        for share in (1.0, 0.5):
            start = 0
            for after, before in pairs():
                part = update[start : start + before.size].reshape(before.shape)
                if share == 1.0:
                    np.subtract(after, before, out=part, dtype=np.float64, casting="same_kind")
                else:
                    np.multiply(after, share, out=part, dtype=np.float64, casting="same_kind")
                    part -= np.multiply(before, share, dtype=np.float64, casting="same_kind")
                start += before.size
            if np.isfinite(update).all():
                break
    return update
