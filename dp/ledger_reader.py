"""A second reader of privacy ledgers: the file, its hash chain, and what its entries say.

By code of its own; the format is in docs/accounting.md, "The ledger". `dp.audit` accounts for what
is read here.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dp.correlated.replay import TAG
from dp.errors import LedgerError

_GENESIS: Final = hashlib.sha256(b"veilsum-ledger/1").digest()
_FIELDS: Final = ("content", "hash", "index", "kind", "previous")
_LONGEST: Final = 1 << 20
_HEADER: Final = {
    "adjacency": "zero-out: one client's contribution replaced by the zero vector",
    "format": "veilsum-ledger",
    "version": 1,
}
INTEGER_TAGS: Final = ("binomial", "skellam", "discrete-gaussian")
_NOISE_FIELDS: Final = {
    "binomial": "coins",
    "skellam": "variance",
    "discrete-gaussian": "local_variance",
}
"""Where an event has its amount of noise; of a discrete Gaussian, that of one contributor."""
NARROWEST: Final = 1.5
"""Local variance from which on a sum of discrete Gaussians is one to a part in 10^6."""

_BARE: Final = {"tag": "non-private"}
_DEEPEST: Final = 8


@dataclass(frozen=True, slots=True)
class ReplayedEntry:
    """One event line of a ledger.

    Attributes:
        line: its number, counted from one.
        event: the event as it is written.
        metadata: what the writer noted beside it.
    """

    line: int
    event: Mapping[str, Any]
    metadata: Mapping[str, Any]


def read_ledger(path: str | os.PathLike[str]) -> list[ReplayedEntry]:
    """Read a whole ledger and verify its chain. The file is not locked and not changed."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise LedgerError(f"ledger {path} cannot be read: {error.strerror}") from error
    if not data:
        raise LedgerError(f"ledger {path} is empty: not even a header was written")
    if not data.endswith(b"\n"):
        number = data.count(b"\n") + 1
        raise LedgerError(
            f"ledger line {number} is cut in mid-line (no newline at the end of the file): a "
            "write was interrupted, or the end is missing"
        )
    return list(_entries(data[:-1].split(b"\n")))


def _entries(lines: Sequence[bytes]) -> Iterator[ReplayedEntry]:
    """Walk along the chain and yield the events on it."""
    previous = _GENESIS
    for index, raw in enumerate(lines):
        line = _verified(raw, index, previous)
        previous = bytes.fromhex(line["hash"])
        content = line["content"]
        if index == 0:
            if line["kind"] != "header" or content != _HEADER:
                raise LedgerError("ledger line 1 is not the header of a ledger of this version")
        elif line["kind"] == "event":
            if not _is_event(content):
                raise LedgerError(f"ledger line {index + 1} is not an event with metadata")
            yield ReplayedEntry(index + 1, content["event"], content["metadata"])
        elif line["kind"] != "recovery":
            raise LedgerError(f"ledger line {index + 1} has the unknown kind {line['kind']!r}")


def _is_event(content: object) -> bool:
    """Say whether the content of a line is an event with metadata, both JSON objects."""
    if not isinstance(content, dict) or set(content) != {"event", "metadata"}:
        return False
    return isinstance(content["event"], dict) and isinstance(content["metadata"], dict)


def _verified(raw: bytes, index: int, previous: bytes) -> dict[str, Any]:
    """Return a line that continues the chain, or raise ``LedgerError`` naming it."""
    where = f"ledger line {index + 1}"
    try:
        line = json.loads(raw) if len(raw) <= _LONGEST else None
    except (ValueError, RecursionError):
        line = None
    if not isinstance(line, dict) or tuple(sorted(line)) != _FIELDS:
        raise LedgerError(f"{where} was altered: it is not a ledger line")
    if _written(line) != raw:
        raise LedgerError(f"{where} was altered: it is not written in the canonical form")
    if type(line["index"]) is not int or line["index"] != index:
        raise LedgerError(f"{where} was altered: it is numbered {line['index']!r}")
    if line["previous"] != previous.hex():
        raise LedgerError(f"{where} was altered, or a line before it was: the chain is broken")
    body = {name: line[name] for name in ("content", "index", "kind")}
    if line["hash"] != hashlib.sha256(previous + _written(body)).hexdigest():
        raise LedgerError(f"{where} was altered: it does not match its hash")
    return line


def _written(value: object) -> bytes:
    """Return the canonical text of a JSON value."""
    try:
        return json.dumps(value, separators=(",", ":"), sort_keys=True, allow_nan=False).encode()
    except ValueError:
        return b""


def flattened(event: object, depth: int = 0) -> Iterator[Mapping[str, Any]]:
    """Yield the simple events of a written event."""
    if not isinstance(event, dict) or not isinstance(event.get("tag"), str) or depth > _DEEPEST:
        raise LedgerError("the ledger holds something that is not an event")
    if event["tag"] != "composition":
        yield event
        return
    if not isinstance(event.get("parts"), list) or not event["parts"]:
        raise LedgerError("the ledger holds a composition without parts")
    for part in event["parts"]:
        yield from flattened(part, depth + 1)


def without_peers(entry: ReplayedEntry) -> list[Mapping[str, Any]]:
    """Return what an entry released to a server that made up all other clients, as written.

    Such peers hold shares of every seed that may be given up, so nothing hides a client but the
    noise that the entry calls its own. Where it does not say, nothing does.
    """
    event, tag = _single(entry)
    if tag == TAG:
        return [_clients_part(event, entry.metadata, "variance_own", 1)]
    if tag not in INTEGER_TAGS:
        return [_BARE]
    kind, name = (int, "coins_own") if tag == "binomial" else (float, "variance_own")
    own, field = entry.metadata.get(name), _NOISE_FIELDS[tag]
    if not (type(own) is kind and own > 0 and type(event.get(field)) is kind):
        return [_BARE]
    # Nobody's own noise is more than all of it.
    alone = {**event, field: min(own, event[field])}
    if type(event.get("contributors")) is int:
        alone["contributors"] = min(1, event["contributors"])
    return [alone]


def without_members(entry: ReplayedEntry) -> list[Mapping[str, Any]]:
    """Return what a round whose noise comes back released to who knows all members' noise.

    The noise of honest clients is left, as far as the entry tells of it.
    """
    event, tag = _single(entry)
    honest = entry.metadata.get("honest")
    if tag != TAG or type(honest) is not int or honest < 1:
        return [_BARE]
    return [_clients_part(event, entry.metadata, "variance_each", honest)]


def _single(entry: ReplayedEntry) -> tuple[Mapping[str, Any], str]:
    """The event of an entry, and its tag; one without noise if there are several."""
    simple = list(flattened(entry.event))
    event = simple[0] if len(simple) == 1 else _BARE
    return event, event["tag"]


def _clients_part(
    event: Mapping[str, Any], metadata: Mapping[str, Any], name: str, clients: int
) -> Mapping[str, Any]:
    """Some clients' noise in a round of a run whose noise comes back; none if unknown."""
    each, all_noise = metadata.get(name), event.get("fresh_variance")
    linf = metadata.get("linf_bound")
    if not (type(each) is float and type(all_noise) is float and type(linf) is int and each > 0):
        return _BARE
    each = min(each, all_noise)
    # Clients have no more noise than was counted of all; of many narrow ones one alone counts.
    counted = min(clients, int(all_noise / each)) if each >= NARROWEST else 1
    some = {field: event.get(field) for field in ("l2_sensitivity", "dimension")}
    some |= {"local_variance": each, "contributors": counted, "linf_sensitivity": linf}
    return {"tag": "discrete-gaussian", **some}
