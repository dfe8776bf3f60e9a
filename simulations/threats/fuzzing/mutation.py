"""Hostile bytes made of valid ones: by byte, by MessagePack field, by JSON and TOML value.

All mutations are fixed by the generator that they are given.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np

T = TypeVar("T")
Rng = np.random.Generator
Mutation = Callable[[Rng, bytes, Sequence[bytes]], bytes]
"""Makes hostile bytes of a valid example; the last argument holds all examples of the decoder."""

LONG = 300_000
"""Bytes of what is long on purpose: beyond most limits, and quick to make."""

INTERESTING = (
    b"",
    b"\0",
    b"\xff",
    b"\x80",
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\xff" * 8,
    b"\n",
    b"\r\n",
    b'"',
    b"\\u0000",
    b"1e999",
    b"-0",
    b"NaN",
)

# Headers that promise more than there is: arrays, maps, strings, binaries, extensions.
HEADERS = tuple(
    bytes([code]) + b"\xff" * length
    for code, length in (
        (0xC4, 1),
        (0xC5, 2),
        (0xC6, 4),
        (0xC7, 2),
        (0xC9, 5),
        (0xD9, 1),
        (0xDB, 4),
        (0xDC, 2),
        (0xDD, 4),
        (0xDE, 2),
        (0xDF, 4),
        (0xCF, 8),
        (0xD3, 8),
        (0xCB, 8),
    )
)


def pick(rng: Rng, among: Sequence[T]) -> T:
    """Draw one of the options."""
    return among[int(rng.integers(len(among)))]


def mutate_bytes(rng: Rng, data: bytes, pool: Sequence[bytes]) -> bytes:
    """One to four changes that know nothing of any format."""
    for _ in range(int(rng.integers(1, 5))):
        data = pick(rng, _BYTE_CHANGES)(rng, data, pool)
    return data


def _flip(rng: Rng, data: bytes, _: Sequence[bytes]) -> bytes:
    if not data:
        return data
    place = int(rng.integers(len(data)))
    return data[:place] + bytes([data[place] ^ (1 << int(rng.integers(8)))]) + data[place + 1 :]


def _overwrite(rng: Rng, data: bytes, _: Sequence[bytes]) -> bytes:
    new = pick(rng, INTERESTING + HEADERS)
    place = int(rng.integers(len(data) + 1))
    return data[:place] + new + data[place + len(new) :]


def _insert(rng: Rng, data: bytes, _: Sequence[bytes]) -> bytes:
    place = int(rng.integers(len(data) + 1))
    new = pick(rng, [*INTERESTING, *HEADERS, rng.bytes(int(rng.integers(1, 40)))])
    return data[:place] + new + data[place:]


def _cut(rng: Rng, data: bytes, _: Sequence[bytes]) -> bytes:
    start, stop = sorted(int(i) for i in rng.integers(0, len(data) + 1, 2))
    return data[:start] + data[stop:]


def _truncate(rng: Rng, data: bytes, _: Sequence[bytes]) -> bytes:
    return data[: int(rng.integers(len(data) + 1))]


def _repeat(rng: Rng, data: bytes, _: Sequence[bytes]) -> bytes:
    start, stop = sorted(int(i) for i in rng.integers(0, len(data) + 1, 2))
    return data[:stop] + data[start:stop] * int(rng.integers(1, 5)) + data[stop:]


def _splice(rng: Rng, data: bytes, pool: Sequence[bytes]) -> bytes:
    other = pick(rng, pool)
    return data[: int(rng.integers(len(data) + 1))] + other[int(rng.integers(len(other) + 1)) :]


def _noise(rng: Rng, data: bytes, _: Sequence[bytes]) -> bytes:
    return data[:1] + rng.bytes(int(rng.integers(0, 200)))


def _nest(rng: Rng, data: bytes, _: Sequence[bytes]) -> bytes:
    """Deep nesting, in every format here."""
    unit = pick(rng, [b"\x91", b"\x81\xc0", b"[", b'{"a":', b"a.", b"[["])
    depth = int(pick(rng, [100, 2000, 100_000]))
    place = int(rng.integers(len(data) + 1))
    return data[:place] + unit * min(depth, LONG // len(unit)) + data[place:]


def _lengthen(rng: Rng, data: bytes, _: Sequence[bytes]) -> bytes:
    place = int(rng.integers(len(data) + 1))
    return data[:place] + pick(rng, [b"\0", b"9", b"a", b" ", b"\xff"]) * LONG + data[place:]


# Long and deep inputs are slow, so they are rare.
_BYTE_CHANGES: Sequence[Mutation] = (
    *(_flip, _overwrite, _insert, _cut, _truncate, _repeat, _splice) * 12,
    _noise,
    _nest,
    _lengthen,
)


def mutate_msgpack(rng: Rng, data: bytes, pool: Sequence[bytes]) -> bytes:
    """Change the fields of a version byte and a MessagePack array, and pack it again."""
    version, fields = data[:1], msgspec.msgpack.decode(data[1:])
    for _ in range(int(rng.integers(1, 4))):
        fields = _mutate_fields(rng, fields, pool)
    packed = msgspec.msgpack.encode(fields)
    if rng.random() < 0.2:
        packed = _longer_form(rng, packed)
    return version + packed


def _mutate_fields(rng: Rng, fields: list[Any], pool: Sequence[bytes]) -> list[Any]:
    # Mostly values of the right type: what else is refused before anybody looks inside.
    place, kind = int(rng.integers(len(fields))) if fields else 0, int(rng.integers(16))
    if kind == 0:
        return [*fields[:place], *fields[place + 1 :]]
    if kind == 1:
        return [*fields[:place], any_value(rng), *fields[place:]]
    if kind == 2:
        other: list[Any] = msgspec.msgpack.decode(pick(rng, pool)[1:])
        return [*fields[:place], *other[place:]]
    if kind == 3 or not fields:
        return [*fields[:place], any_value(rng), *fields[place + 1 :]]
    return [*fields[:place], _mutate_value(rng, fields[place]), *fields[place + 1 :]]


def _mutate_value(rng: Rng, value: Any) -> Any:
    if isinstance(value, bytes):
        if rng.random() < 0.7:
            return _flip(rng, value, [])
        return mutate_bytes(rng, value, [value])
    if isinstance(value, str):
        changed = mutate_bytes(rng, value.encode(), [value.encode()])
        return changed.decode("utf-8", "replace")
    if isinstance(value, bool) or value is None:
        return any_value(rng)
    if isinstance(value, int):
        near = value + int(rng.integers(-2, 3))
        new = pick(rng, [near, -value, value << 8, (1 << 64) - 1, -1, 1 << 62])
        # MessagePack has no others.
        return max(-(1 << 63), min(new, (1 << 64) - 1))
    if isinstance(value, float):
        return pick(rng, [-value, 0.0, 1e308, 5e-324, float("inf"), float("nan"), value * 2])
    if isinstance(value, list):
        return [*value, any_value(rng)]
    return any_value(rng)


def any_value(rng: Rng, depth: int = 0) -> Any:
    """A value of any type that MessagePack and JSON share, binary aside."""
    simple: tuple[Any, ...] = (
        None,
        True,
        0,
        -1,
        (1 << 64) - 1,
        -(1 << 63),
        1.5,
        "text",
        "\udfff".encode("utf-8", "replace").decode(),
        [],
        {},
        rng.bytes(int(rng.integers(0, 70))),
        bytes(32),
        bytes(64),
    )
    if depth < 4 and rng.random() < 0.3:
        inner = [any_value(rng, depth + 1) for _ in range(int(rng.integers(0, 4)))]
        return inner if rng.random() < 0.7 else dict.fromkeys("abc", inner)
    return pick(rng, simple)


def _longer_form(rng: Rng, packed: bytes) -> bytes:
    """The same array under a longer header, which the format allows."""
    count = packed[0] & 0x0F
    if packed[0] >> 4 != 9:
        return packed
    return pick(rng, [b"\xdc\0", b"\xdd\0\0\0"]) + bytes([count]) + packed[1:]


def mutate_json(rng: Rng, data: bytes, pool: Sequence[bytes]) -> bytes:
    """Change one to three values somewhere in a JSON object, in its canonical form."""
    whole = json.loads(data)
    for _ in range(int(rng.integers(1, 4))):
        whole = _mutate_json_value(rng, whole)
    text = json.dumps(whole, sort_keys=True, separators=(",", ":"), default=lambda raw: raw.hex())
    return text.encode("ascii")


def _mutate_json_value(rng: Rng, value: Any) -> Any:
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = pick(rng, sorted(value))
        if rng.random() < 0.1:
            return {k: v for k, v in value.items() if k != key}
        return {**value, key: _mutate_json_value(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.8:
        place = int(rng.integers(len(value)))
        return [*value[:place], _mutate_json_value(rng, value[place]), *value[place + 1 :]]
    return _mutate_value(rng, value) if rng.random() < 0.6 else any_value(rng)


def mutate_toml(rng: Rng, data: bytes, pool: Sequence[bytes]) -> bytes:
    """Change values, names and order of the lines of a TOML file."""
    lines = data.decode().splitlines()
    for _ in range(int(rng.integers(1, 4))):
        place = int(rng.integers(len(lines)))
        name, equals, value = lines[place].partition("=")
        kind = int(rng.integers(5))
        if kind == 0:
            del lines[place]
        elif kind == 1:
            lines.insert(int(rng.integers(len(lines) + 1)), lines[place])
        elif equals and kind == 2:
            lines[place] = f"{name}s ={value}"
        else:
            lines[place] = f"{name}= {pick(rng, TOML_VALUES)}"
        lines = lines or [""]
    return "\n".join(lines).encode()


TOML_VALUES = (
    "-1",
    "0",
    "1e400",
    "-inf",
    "nan",
    "9" * 5000,
    "99999999999999999999999999",
    "0x" + "f" * 40,
    "0x" + "f" * 5000,
    "true",
    '""',
    '"active"',
    "[]",
    "[" * 1500,
    "{ a = 1 }",
    "{" + "a={" * 800,
    "1979-05-27",
    "07:32:00",
    "1_000",
    "'''",
)
"""Values that are wrong in some way, for most keys."""
