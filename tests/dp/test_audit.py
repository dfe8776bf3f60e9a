"""The second reader: same figures by another route, every alteration noticed by other code."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from accounts import epsilon_of

from dp.accounting import DominationAccountant, FailureReserve, MomentsAccountant
from dp.audit import (
    composed_epsilon,
    composed_moments,
    release_moment,
    release_mu,
    replayed_epsilon,
)
from dp.budget import replay
from dp.correlated import CorrelatedRelease
from dp.errors import LedgerError, UnsupportedEventError
from dp.event_kinds import Event
from dp.events import (
    BinomialRelease,
    Composition,
    DiscreteGaussianRelease,
    GaussianRelease,
    LevelRelease,
    NonPrivateRelease,
    PoissonSampled,
    SkellamRelease,
)
from dp.ledger import Ledger
from dp.ledger_reader import flattened, read_ledger, without_members, without_peers
from dp.records import encode_event
from protocol.training.records import replayed_events

DELTA = 1e-5
FIRST = BinomialRelease(14272, 16.0, 16, 1000)
SECOND = Composition((BinomialRelease(3001, 8.5, 4, 500), SkellamRelease(400.0, 5.0, 3, 7)))
THIRD = DiscreteGaussianRelease(2.5, 80, 4.0, 4, 9)
FOURTH = SkellamRelease(400.0, 5.0, 3, 7)
NOBODY = replace(THIRD, contributors=0)
EVENTS: list[Event] = [FIRST, SECOND, FIRST, THIRD, GaussianRelease(30.0, 2.0)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    location = tmp_path / "privacy.jsonl"
    with Ledger.open(location) as ledger:
        for number, event in enumerate(EVENTS):
            ledger.append(event, {"round": number})
    return location


def _running(events: list[Event], reserve: FailureReserve | None = None) -> float:
    return replay(events, DominationAccountant(reserve)).epsilon(DELTA)


def test_the_replay_equals_the_running_accountant(path: Path) -> None:
    """Two routes that share only the last step; the accountant is the one that rounds up."""
    with Ledger.open(path) as ledger:
        running = _running(list(ledger.events()))
    entries = read_ledger(path)
    assert [entry.metadata["round"] for entry in entries] == [0, 1, 2, 3, 4]
    assert [entry.line for entry in entries] == [2, 3, 4, 5, 6]
    replayed = replayed_epsilon([entry.event for entry in entries], DELTA)
    assert running * (1 - 3e-6) < replayed < running


@pytest.mark.parametrize(
    "event",
    [
        BinomialRelease(256, 4.0, 4, 9),
        BinomialRelease(1025, 16.0, 16, 9),
        BinomialRelease(65536, 128.0, 16, 9),
        BinomialRelease(4096, 64.0, 64, 9),
        SkellamRelease(64.0, 4.0, 4, 9),
        SkellamRelease(1e6, 100.0, 30, 9),
        DiscreteGaussianRelease(256.0, 1, 16.0, 16, 9),
        DiscreteGaussianRelease(3.0, 1000, 16.0, 16, 9),
        GaussianRelease(7.0, 3.0),
    ],
)
def test_every_mechanism_by_two_routes(event: Event) -> None:
    replayed = replayed_epsilon([encode_event(event)], DELTA)
    running = _running([event])
    assert running * (1 - 3e-6) < replayed <= running


def test_a_reserve_counts_in_full() -> None:
    reserve = FailureReserve.from_delta(DELTA, 10)
    written = [encode_event(FIRST)] * 3
    fixed = (DELTA, reserve.delta0, reserve.releases)
    found = composed_epsilon(written, *fixed, reserve.aggregation)
    running = _running([FIRST] * 3, reserve)
    assert running * (1 - 3e-6) < found < running
    # Without the part for secure aggregation the second reader would find less.
    assert composed_epsilon(written, *fixed) < running * (1 - 3e-6)
    assert composed_epsilon(written, *fixed, DELTA / 10) == math.inf
    assert composed_epsilon(written * 4, DELTA, reserve.delta0, 10) == math.inf
    assert composed_epsilon(written, DELTA, DELTA, 10) == math.inf
    assert composed_epsilon([], DELTA, 1e-8, 10) == 0.0


WEAK: list[Event] = [
    BinomialRelease(28, 1.0, 1, 9),
    BinomialRelease(36, 3.0, 2, 9),
    BinomialRelease(257, 8.0, 8, 9),
    BinomialRelease(1024, 16.0, 16, 9),
    SkellamRelease(9.0, 2.0, 2, 9),
    SkellamRelease(200.0, 8.5, 6, 9),
    DiscreteGaussianRelease(3.0, 9, 4.0, 4, 9),
    GaussianRelease(3.0, 2.0),
]


@pytest.mark.parametrize("delta", [1e-5, 1e-7, 1e-9, 1e-12])
@pytest.mark.parametrize(
    "event", [BinomialRelease(40_000, 16.0, 4, 9), SkellamRelease(64.0, 4.0, 4, 9)]
)
def test_a_small_delta_by_two_routes(event: Event, delta: float) -> None:
    """Tails of the size of a rounding error of 1 are taken from the side that has no 1."""
    reserve = FailureReserve.from_delta(delta, 100)
    spent = epsilon_of(DominationAccountant, event, delta=delta, rounds=100, reserve=reserve)
    written = [encode_event(event)] * 100
    found = composed_epsilon(written, delta, reserve.delta0, 100, reserve.aggregation)
    assert found <= spent <= found * (1.0 + 3e-6)


@pytest.mark.parametrize("event", WEAK)
@pytest.mark.parametrize("order", [1.6, 3.0, 9.0])
def test_moments_by_two_routes(event: Event, order: float) -> None:
    """The accountant is the one that rounds up."""
    reserve = FailureReserve.from_delta(1e-3, 4, moment_order=order)
    written = [encode_event(event)] * 3
    found = composed_moments(written, 1e-3, reserve.delta0, 4, reserve.aggregation, order=order)
    running = replay([event] * 3, MomentsAccountant(reserve)).epsilon(1e-3)
    assert running * (1 - 3e-6) - 1e-7 < found <= running < math.inf


def test_moments_at_the_edges() -> None:
    written = [encode_event(BinomialRelease(4, 4.0, 4, 9))]
    assert composed_moments(written, 1e-3, 1e-6, 4, order=3.0) == math.inf
    some = [encode_event(BinomialRelease(64, 2.0, 2, 9))]
    assert composed_moments(some * 5, 1e-3, 1e-6, 4, order=3.0) == math.inf
    assert composed_moments(some, 1e-3, 1e-3, 4, order=3.0) == math.inf
    assert composed_moments([], 1e-3, 1e-6, 4, order=3.0) == 0.0
    assert (
        composed_moments([encode_event(NonPrivateRelease())], 1e-3, 1e-6, 4, order=3.0) == math.inf
    )
    silent = [encode_event(BinomialRelease(64, 0.5, 1, 9))]
    assert composed_moments(silent, 1e-3, 1e-6, 4, order=9.0) < composed_moments(
        some, 1e-3, 1e-6, 4, order=9.0
    )
    with pytest.raises(LedgerError, match="malformed"):
        release_moment({"tag": "gaussian", "sigma": -1.0, "l2_sensitivity": 1.0}, 1e-6, 3.0)
    with pytest.raises(UnsupportedEventError):
        release_moment({"tag": "level"}, 1e-6, 3.0)


def test_extremes() -> None:
    assert replayed_epsilon([], DELTA) == 0.0
    assert replayed_epsilon([encode_event(NonPrivateRelease())], DELTA) == math.inf
    for weak in (BinomialRelease(0, 4.0, 4, 9), SkellamRelease(0.0, 1.0, 1, 1)):
        assert replayed_epsilon([encode_event(weak)], DELTA) == math.inf
    assert replayed_epsilon([encode_event(GaussianRelease(0.0, 1.0))], DELTA) == math.inf
    assert release_mu(encode_event(GaussianRelease(0.0, 0.0)), 1e-8) == 0.0
    assert release_mu(encode_event(BinomialRelease(100, 0.5, 3, 9)), 1e-8) == 0.0
    assert release_mu(encode_event(BinomialRelease(16, 100.0, 20, 9)), 1e-8) == math.inf


@pytest.mark.parametrize(
    "event",
    [
        PoissonSampled(0.1, FIRST),
        LevelRelease(100, 0.5, 4, 1.0, 9, True),
        DiscreteGaussianRelease(0.5, 10, 4.0, 4, 9),
        BinomialRelease(2**31, 5000.0, 5000, 9),
    ],
)
def test_what_the_route_does_not_know_is_refused_by_name(event: Event) -> None:
    with pytest.raises(UnsupportedEventError, match=str(encode_event(event)["tag"])):
        replayed_epsilon([encode_event(event)], DELTA)


@pytest.mark.parametrize(
    "event",
    [
        {"tag": "binomial"},
        {"tag": "binomial", "coins": "many", "l2_sensitivity": 1.0, "linf_sensitivity": 1},
        {**encode_event(FIRST), "linf_sensitivity": 0},
        {**encode_event(FIRST), "coins": -2},
        {**encode_event(FIRST), "coins": True},
        {**encode_event(FIRST), "l2_sensitivity": -1.0},
        {**encode_event(FIRST), "l2_sensitivity": 0},
        {**encode_event(FIRST), "extra": 1},
        {"tag": "composition", "parts": []},
        {"tag": "composition", "parts": 3},
        {"coins": 3},
        [],
        None,
    ],
)
def test_malformed_events_are_refused(event: Any) -> None:
    with pytest.raises(LedgerError):
        replayed_epsilon([event], DELTA)


def test_deep_nesting_is_refused() -> None:
    event: dict[str, Any] = {"tag": "non-private"}
    for _ in range(20):
        event = {"tag": "composition", "parts": [event]}
    with pytest.raises(LedgerError, match="not an event"):
        list(flattened(event))


@pytest.mark.parametrize(
    ("event", "metadata", "alone"),
    [
        (FIRST, {"coins_own": 120}, 120),
        (FIRST, {"coins_own": 10**9}, FIRST.coins),
        (FIRST, {}, None),
        (FIRST, {"coins_own": 0}, None),
        (FIRST, {"coins_own": -1}, None),
        (FIRST, {"coins_own": True}, None),
        (FIRST, {"coins_own": 120.0}, None),
        (FIRST, {"coins_each": 120}, None),
        (SECOND, {"coins_own": 120}, None),
        (THIRD, {"coins_own": 120}, None),
        (NonPrivateRelease(), {"coins_own": 120}, None),
        (FIRST, {"variance_own": 30.0}, None),
        (FOURTH, {"variance_own": 30.0}, replace(FOURTH, variance=30.0)),
        (FOURTH, {"variance_own": 1e9}, FOURTH),
        (FOURTH, {"variance_own": 30}, None),
        (FOURTH, {"variance_each": 30.0}, None),
        (THIRD, {"variance_own": 2.5}, replace(THIRD, contributors=1)),
        (THIRD, {"variance_own": 2.0}, replace(THIRD, contributors=1, local_variance=2.0)),
        (THIRD, {"variance_own": 1e9}, replace(THIRD, contributors=1)),
        (NOBODY, {"variance_own": 2.5}, NOBODY),
        (THIRD, {"variance_own": -2.5}, None),
    ],
)
def test_made_up_peers_leave_what_the_entry_calls_the_clients_own(
    tmp_path: Path, event: Event, metadata: dict[str, Any], alone: Event | int | None
) -> None:
    """Where an entry does not say, they leave nothing; the running records are of one mind."""
    with Ledger.open(tmp_path / "one.jsonl") as ledger:
        entry = ledger.append(event, metadata)
        (read,) = read_ledger(ledger.path)
    left = replace(FIRST, coins=alone) if isinstance(alone, int) else alone or NonPrivateRelease()
    assert without_peers(read) == [encode_event(left)]
    assert replayed_events(entry).sybil == left


NAMED = {"variance_each": 6.0, "honest": 8, "linf_bound": 4}
ROUND = CorrelatedRelease(
    index=1,
    fresh_variance=100.0,
    returned_variance=0.0,
    l2_sensitivity=4.0,
    dimension=9,
    rounds=2,
    least_fresh=50.0,
    largest_return=40.0,
    smallest_part=1.0,
    most_parts=20,
    least_kept=10.0,
)


@pytest.mark.parametrize(
    ("event", "metadata", "clients"),
    [
        (ROUND, NAMED, 8),
        (ROUND, {**NAMED, "honest": 10**9}, 16),
        (ROUND, {**NAMED, "honest": 0}, None),
        (ROUND, {**NAMED, "honest": True}, None),
        (ROUND, {**NAMED, "variance_each": 6}, None),
        (ROUND, {**NAMED, "linf_bound": None}, None),
        (THIRD, {**NAMED, "variance_each": 2.5}, None),
    ],
)
def test_leaked_members_noise_leaves_what_the_entry_says_of_honest_clients(
    tmp_path: Path, event: Event, metadata: dict[str, Any], clients: int | None
) -> None:
    with Ledger.open(tmp_path / "one.jsonl") as ledger:
        entry = ledger.append(event, metadata)
        (read,) = read_ledger(ledger.path)
    left = DiscreteGaussianRelease(6.0, clients, 4.0, 4, 9) if clients else NonPrivateRelease()
    assert without_members(read) == [encode_event(left)]
    assert replayed_events(entry).without_members == (left if event is ROUND else None)


def test_of_narrow_noise_that_the_reader_cannot_add_up_one_client_counts(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "one.jsonl") as ledger:
        ledger.append(ROUND, {**NAMED, "variance_each": 1.25})
        (read,) = read_ledger(ledger.path)
    assert without_members(read) == [encode_event(DiscreteGaussianRelease(1.25, 1, 4.0, 4, 9))]


def _rewritten(line: dict[str, Any]) -> bytes:
    return json.dumps(line, sort_keys=True, separators=(",", ":")).encode()


def _coins(line: dict[str, Any]) -> None:
    line["content"]["event"]["coins"] += 2


ALTERATIONS: dict[str, Callable[[dict[str, Any]], None]] = {
    "coins": _coins,
    "l2": lambda line: line["content"]["event"].update(l2_sensitivity=15.0),
    "linf": lambda line: line["content"]["event"].update(linf_sensitivity=15),
    "dimension": lambda line: line["content"]["event"].update(dimension=1),
    "tag": lambda line: line["content"]["event"].update(tag="non-private"),
    "metadata": lambda line: line["content"]["metadata"].update(round=7),
    "index": lambda line: line.update(index=2),
    "kind": lambda line: line.update(kind="recovery"),
    "previous": lambda line: line.update(previous="00" * 32),
    "hash": lambda line: line.update(hash="00" * 32),
    "extra": lambda line: line.update(extra=1),
}


@pytest.mark.parametrize("name", ALTERATIONS)
def test_an_altered_field_is_noticed_by_both_readers(path: Path, name: str) -> None:
    lines = path.read_bytes().splitlines()
    line = json.loads(lines[1])
    ALTERATIONS[name](line)
    lines[1] = _rewritten(line)
    path.write_bytes(b"\n".join(lines) + b"\n")
    with pytest.raises(LedgerError, match="line 2"):
        read_ledger(path)
    with pytest.raises(LedgerError, match="line 2"):
        Ledger.open(path)


def test_a_rehashed_line_breaks_the_next_for_both_readers(path: Path) -> None:
    lines = path.read_bytes().splitlines()
    line = json.loads(lines[1])
    _coins(line)
    body = {key: line[key] for key in ("content", "index", "kind")}
    previous = bytes.fromhex(line["previous"])
    line["hash"] = hashlib.sha256(previous + _rewritten(body)).hexdigest()
    lines[1] = _rewritten(line)
    path.write_bytes(b"\n".join(lines) + b"\n")
    with pytest.raises(LedgerError, match=r"line 3 was altered, or a line before it"):
        read_ledger(path)
    with pytest.raises(LedgerError, match="line 3 does not follow"):
        Ledger.open(path)


@pytest.mark.parametrize("cut", [1, 20, 200])
def test_a_ledger_cut_in_mid_line(path: Path, cut: int) -> None:
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(LedgerError, match="line 6 is cut in mid-line"):
        read_ledger(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "empty"),
        (b"\n", "line 1 was altered"),
        (b"[]\n", "not a ledger line"),
        (b"\xff\n", "not a ledger line"),
        (b'{"content":NaN,"hash":"","index":0,"kind":"header","previous":""}\n', "canonical"),
    ],
)
def test_foreign_files(tmp_path: Path, text: bytes, words: str) -> None:
    location = tmp_path / "foreign"
    location.write_bytes(text)
    with pytest.raises(LedgerError, match=words):
        read_ledger(location)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="No such file"):
        read_ledger(tmp_path / "nowhere")


def test_recovered_ledgers_are_read(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])
    with Ledger.open(path, recover=True) as ledger:
        ledger.append(FIRST)
    assert len(read_ledger(path)) == len(EVENTS)


@pytest.mark.parametrize(
    ("index", "kind", "content", "words"),
    [
        (0, "event", {}, "line 1 is not the header"),
        (0, "header", {"version": 2}, "line 1 is not the header"),
        (6, "remark", {}, "unknown kind"),
        (6, "event", {"event": {}}, "not an event with metadata"),
        (6, "event", {"event": {}, "metadata": []}, "not an event with metadata"),
    ],
)
def test_forged_lines_with_good_hashes(
    path: Path, index: int, kind: str, content: object, words: str
) -> None:
    from dp.ledger import GENESIS, _line_hash

    lines = path.read_bytes().splitlines()[:index]
    previous = json.loads(lines[-1])["hash"] if lines else GENESIS
    fields = {"content": content, "index": index, "kind": kind, "previous": previous}
    digest = _line_hash(previous, index, kind, content)
    path.write_bytes(b"\n".join([*lines, _rewritten({**fields, "hash": digest})]) + b"\n")
    with pytest.raises(LedgerError, match=words):
        read_ledger(path)
