"""Refusals that have to name what they refuse."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from protocol.errors import PolicyError
from secagg import ParameterError

_NAMED_BY = {ParameterError: "argument", PolicyError: "parameter"}


@contextmanager
def refused(kind: type[ParameterError | PolicyError], name: str) -> Iterator[None]:
    """The body is refused for this argument or parameter of a round."""
    with pytest.raises(kind) as raised:
        yield
    assert getattr(raised.value, _NAMED_BY[kind]) == name
