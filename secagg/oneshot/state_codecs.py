"""How the states of clients and members of a one-shot round are stored: see `secagg.storage`."""

from __future__ import annotations

from dataclasses import astuple
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg.keys import SecretSeed
from secagg.oneshot import states
from secagg.oneshot.context import OneShotContext
from secagg.oneshot.header import Header
from secagg.oneshot.layout import decode_rows, encode_rows
from secagg.oneshot.records import RoundRecord
from secagg.state_codec import StateCodec

CLIENT_CODEC = StateCodec(
    role=b"one-shot client",
    states=(states.Fresh, states.Seeded, states.Uploaded),
    fields={
        "root": (SecretSeed.expose, lambda raw, _: SecretSeed(raw)),
        "removable": (
            lambda seeds: [seed.expose() for seed in seeds],
            lambda raw, _: tuple(SecretSeed(each) for each in raw),
        ),
        "own": (SecretSeed.expose, lambda raw, _: SecretSeed(raw)),
        "upload": (bytes, lambda raw, _: raw),
        "header_digest": (bytes, lambda raw, _: raw),
    },
)


def _shares_from_plain(raw: bytes, context: OneShotContext) -> NDArray[np.uint32]:
    columns = context.layout.polynomials
    return decode_rows(raw, len(raw) // (4 * columns), columns)


def _own_from_plain(raw: list[Any] | None, _: OneShotContext) -> tuple[int, bytes | None] | None:
    return (raw[0], raw[1]) if raw else None


def _record_to_plain(record: RoundRecord | None) -> list[Any] | None:
    return None if record is None else list(astuple(record))


def _record_from_plain(raw: list[Any] | None, _: OneShotContext) -> RoundRecord | None:
    return RoundRecord(raw[0], raw[1], tuple(raw[2]), tuple(raw[3])) if raw else None


MEMBER_CODEC = StateCodec(
    role=b"one-shot member",
    states=(states.Waiting, states.Checked, states.Confirmed),
    fields={
        "headers": (
            lambda headers: [[header.sender, header.encode()] for header in headers],
            lambda raw, _: tuple(Header.decode(sender, encoded) for sender, encoded in raw),
        ),
        "shares": (encode_rows, _shares_from_plain),
        "signed": (bytes, lambda raw, _: raw),
        "survivors": (list, lambda raw, _: tuple(raw)),
        "record": (_record_to_plain, _record_from_plain),
        "own": (lambda own: list(own) if own else None, _own_from_plain),
    },
    # Whoever resumes it need not remember what it uploaded itself.
    party=("own",),
)
