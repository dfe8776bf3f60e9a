"""Events as JSON and back, through a fixed registry of tags.

A tag names a class that is listed here; a file can never make the program import or build
anything else. The fields are those of the class, and decoding accepts exactly them.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, Final

from dp.correlated.event import CorrelatedRelease
from dp.errors import LedgerError, UnsupportedEventError
from dp.event_kinds import Event
from dp.events import (
    AboveThresholdRelease,
    Allocated,
    BinomialRelease,
    Composition,
    DiscreteGaussianRelease,
    FixedSizeSampled,
    GaussianRelease,
    LaplaceRelease,
    LevelRelease,
    LocalRelease,
    NonPrivateRelease,
    PoissonSampled,
    SkellamRelease,
)

_EVENTS: Final[Mapping[str, type[Event]]] = {
    event.tag: event
    for event in (
        BinomialRelease,
        DiscreteGaussianRelease,
        SkellamRelease,
        GaussianRelease,
        CorrelatedRelease,
        LaplaceRelease,
        AboveThresholdRelease,
        LocalRelease,
        LevelRelease,
        NonPrivateRelease,
        PoissonSampled,
        FixedSizeSampled,
        Allocated,
        Composition,
    )
}

_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    tag: tuple(field.name for field in dataclasses.fields(event)) for tag, event in _EVENTS.items()
}

_MAX_DEPTH: Final = 8
"""Deepest nesting of compositions read from a file: a round has two levels at most."""


def canonical_json(value: object) -> bytes:
    """Return the one byte string of a JSON value: sorted keys, no blanks, ASCII, no NaN."""
    text = json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    )
    return text.encode("ascii")


def encode_event(event: Event) -> dict[str, Any]:
    """Return the JSON object of an event: its tag and its fields."""
    tag = getattr(event, "tag", "")
    if type(event) is not _EVENTS.get(tag):
        raise UnsupportedEventError(f"no ledger tag for {type(event).__name__}")
    return {"tag": tag, **{name: _encoded(getattr(event, name)) for name in _FIELDS[tag]}}


def _encoded(value: Any) -> Any:
    """Return the JSON value of a field."""
    if isinstance(value, tuple):
        return [encode_event(part) for part in value]
    return encode_event(value) if isinstance(value, Event) else value


def decode_event(record: object, depth: int = 0) -> Event:
    """Return the event of a JSON object made by ``encode_event``."""
    if depth > _MAX_DEPTH:
        raise LedgerError(f"events are nested deeper than {_MAX_DEPTH}")
    if not isinstance(record, dict):
        raise LedgerError(f"an event is a JSON object, got {type(record).__name__}")
    tag = record.get("tag")
    if not isinstance(tag, str) or tag not in _EVENTS:
        raise LedgerError(f"unknown event tag {tag!r}; known are {', '.join(sorted(_EVENTS))}")
    if set(record) != {"tag", *_FIELDS[tag]}:
        raise LedgerError(f"event {tag!r} has fields {sorted(record)}, not {_FIELDS[tag]}")
    fields: dict[str, Any] = {name: record[name] for name in _FIELDS[tag]}
    if tag == "composition":
        fields["parts"] = _decode_parts(fields["parts"], depth)
    if "event" in fields:
        fields["event"] = decode_event(fields["event"], depth + 1)
    try:
        return _EVENTS[tag](**fields)
    except (TypeError, ValueError) as error:
        raise LedgerError(f"event {tag!r} is out of range: {error}") from error


def _decode_parts(parts: object, depth: int) -> tuple[Event, ...]:
    """Return the decoded members of a composition."""
    if not isinstance(parts, list):
        raise LedgerError(f"parts must be a JSON list, got {type(parts).__name__}")
    return tuple(decode_event(part, depth + 1) for part in parts)
