"""Everything that reads bytes from outside, with valid examples to start from.

The examples come from one honest round of five clients, in which every kind of message occurs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from dp import BinomialRelease, Composition, Ledger, LedgerError, NonPrivateRelease
from dp.records import canonical_json, encode_event
from protocol import ConfigurationError, RoundSetup
from protocol.planning.configuration import load
from secagg import (
    SERVER,
    ClientSession,
    FieldVector,
    PrimeField,
    RemoteProtocolError,
    ServerSession,
    SessionContext,
)
from secagg.field import pack, unpack
from secagg.framing import decode_set, encode_message, encode_set
from secagg.pairwise.client_states import Party, State
from secagg.pairwise.messages import (
    UnmaskShares,
    decode_from_client,
    decode_from_server,
    largest_message_bytes,
)
from secagg.pairwise.transitions import ClientPhase, ServerPhase
from secagg.shamir import decode_share, encode_share
from secagg.storage import StoredStateError, resume, suspend
from simulations.learning.configuration import RunConfig, demo_config
from simulations.threats.faults.behaviours import Sent, Tally, Wire
from simulations.threats.faults.encoded import random_setup
from simulations.threats.faults.rounds import HonestParty, Round, honest_parties
from simulations.threats.fuzzing.announced import committee_decoders
from simulations.threats.fuzzing.compressed import compressed_decoders
from simulations.threats.fuzzing.engine import Decoder
from simulations.threats.fuzzing.mutation import (
    Rng,
    mutate_json,
    mutate_msgpack,
    mutate_toml,
    pick,
)
from simulations.threats.game.contexts import KeptKeys, identity_of, random_inputs
from simulations.threats.game.games import Setting
from sketch import SketchSpec, spec_for_size

CLIENTS, LISTENER = 5, 0
"""Size of the example round, and the client whose messages are replaced by hostile ones."""


def all_decoders(folder: Path) -> list[Decoder]:
    """Every decoder; `folder` holds the files of those that read files."""
    example = example_round()
    return [
        *message_decoders(example),
        *client_decoders(example),
        *server_decoders(example),
        stored_state_decoder(example),
        *parts_decoders(),
        *compressed_decoders(),
        announcement_decoder(),
        *committee_decoders(),
        ledger_decoder(folder),
        config_decoder(folder),
    ]


# -- an honest round --------------------------------------------------------------------------


@dataclass(slots=True)
class Example:
    """One honest round."""

    context: SessionContext
    up: list[Sent] = field(default_factory=list)
    down: list[Sent] = field(default_factory=list)
    states: dict[ClientPhase, tuple[Party, State]] = field(default_factory=dict)

    def of_listener(self, stages: list[Sent]) -> list[bytes]:
        """The messages from or to the listener."""
        return [data for stage in stages for u, data in stage if u == LISTENER]


class _Recorder(Wire):
    """A wire without faults that keeps what it carries; stages take turns, upward first."""

    def __init__(self, example: Example) -> None:
        super().__init__(np.random.default_rng(1), 0.0, Tally())
        self._example = example

    def carry(self, sent: Sent) -> Sent:
        up, down = self._example.up, self._example.down
        (up if len(up) == len(down) else down).append(list(sent))
        return sent


class _Watched(HonestParty):
    """A client whose state is kept before every message that it gets."""

    example: Example

    def receive(self, data: bytes) -> Sent:
        party, state = self.session.hand_over()
        self.example.states[state.phase] = party, state
        self.session = ClientSession.from_state(party, state)
        return super().receive(data)


def example_round() -> Example:
    """Active mode, removable seeds, a client that vanishes so that seeds are recovered."""
    setting = Setting(size=CLIENTS, colluders=0, lost=1, removal=(0b11, 0b01), bits=24, length=7)
    context = setting.context(1)
    example = Example(context)
    inputs = random_inputs(np.random.default_rng(1), context)
    parties = honest_parties(context, inputs, list(range(CLIENTS)), b"fuzz")
    watched = _Watched(
        parties[LISTENER].session,
        LISTENER,
        lambda _: FieldVector(context.field, inputs[LISTENER].copy()),
    )
    watched.example = example
    parties[LISTENER] = watched
    parties[CLIENTS - 1].leaves_before = UnmaskShares
    known = dict(enumerate(inputs))
    Round(context, parties, known, {}, _Recorder(example), Tally()).run()
    return example


# -- messages ---------------------------------------------------------------------------------


def message_decoders(example: Example) -> Iterator[Decoder]:
    """One for each kind of message, as the party decodes it that gets it."""
    limit = largest_message_bytes(example.context)
    up = example.of_listener(example.up)
    down = example.of_listener(example.down)
    directions: tuple[tuple[list[bytes], Callable[[bytes], Any]], ...] = (
        (up, lambda data: decode_from_client(data, LISTENER, limit)),
        (down, lambda data: decode_from_server(data, SERVER, limit)),
    )
    for messages, decode in directions:
        for data in messages:
            yield Decoder(
                name=f"message {data[2]} {type(decode(data)).__name__}",
                seeds=[data, data, *messages],
                decode=decode,
                errors=(RemoteProtocolError,),
                encode=encode_message,
                # MessagePack has longer forms of the same value; signatures cover fields.
                one_form=False,
                mutations=(mutate_msgpack,),
            )


def client_decoders(example: Example) -> Iterator[Decoder]:
    """A client session in every phase in which it waits for a message."""
    down = example.of_listener(example.down)
    for place, (phase, (party, state)) in enumerate(example.states.items()):

        def receive(data: bytes, party: Party = party, state: State = state) -> bytes | None:
            return ClientSession.from_state(party, state).receive_bytes(data)

        yield Decoder(
            name=f"client, {phase.value}",
            seeds=[down[place]] * 4 + down,
            decode=receive,
            errors=(RemoteProtocolError,),
            mutations=(mutate_msgpack,),
        )


class _ServerAt:
    """A server that waits for the listener's message of one stage, and no other."""

    def __init__(self, example: Example, stage: int) -> None:
        self._example = example
        self._stage = stage
        self._server = self._fresh()

    @property
    def phase(self) -> ServerPhase:
        return self._server.phase

    def receive(self, data: bytes) -> None:
        """Take the message, then go back, so that the next case finds the same server."""
        before = (self._server.phase, self._server.answered)
        try:
            self._server.receive_bytes(LISTENER, data)
        except RemoteProtocolError:
            if (self._server.phase, self._server.answered) != before:
                raise AssertionError("a refused message changed the server") from None
            raise
        self._server = self._fresh()

    def _fresh(self) -> ServerSession:
        server = ServerSession(self._example.context)
        for stage in range(self._stage + 1):
            for u, data in self._example.up[stage]:
                if stage < self._stage or u != LISTENER:
                    server.receive_bytes(u, data)
            if stage < self._stage:
                server.close_round()
        return server


def server_decoders(example: Example) -> Iterator[Decoder]:
    """A server session in every phase."""
    up = example.of_listener(example.up)
    for stage, data in enumerate(up):
        server = _ServerAt(example, stage)
        yield Decoder(
            name=f"server, {server.phase.value}",
            seeds=[data] * 4 + up,
            decode=server.receive,
            errors=(RemoteProtocolError,),
            mutations=(mutate_msgpack,),
        )


# -- stored states ----------------------------------------------------------------------------


def stored_state_decoder(example: Example) -> Decoder:
    """A client's stored states. Each has a random token, so only bytes repeat a case, not numbers.

    What is inside the seal is not fuzzed: only the client's own identity can make it.
    """
    # The same state is resumed in many cases.
    keys = KeptKeys()
    seeds = [
        suspend(ClientSession.from_state(party, state), keys)
        for party, state in example.states.values()
    ]

    def read(data: bytes) -> ClientPhase:
        listener = Party(example.context, LISTENER, identity_of(LISTENER))
        return resume(ClientSession, data, listener, keys).phase

    return Decoder(name="stored session", seeds=seeds, decode=read, errors=(StoredStateError,))


# -- parts of messages ------------------------------------------------------------------------


def parts_decoders() -> Iterator[Decoder]:
    """Packed vectors, sets, shares, sketch specs: one form each."""
    rng = np.random.default_rng(2)
    for bits, length in ((8, 9), (13, 5), (24, 3), (32, 4), (61, 3)):
        yield _vector_decoder(rng, PrimeField(bits), length)
    yield Decoder(
        name="set",
        seeds=[encode_set((0, 3, 12), 13), encode_set(range(13), 13)],
        decode=lambda data: decode_set(data, 13),
        errors=(ValueError,),
        encode=lambda members: encode_set(members, 13),
    )
    share = rng.integers(0, (1 << 31) - 1, (3, 9), np.uint64).astype(np.uint32)
    yield Decoder(
        name="share",
        seeds=[encode_share(share)],
        decode=lambda data: decode_share(data, 3),
        errors=(ValueError,),
        encode=encode_share,
    )
    yield Decoder(
        name="sketch spec",
        seeds=[
            SketchSpec.identity(100).encode_bytes(),
            spec_for_size(1000, 100, 5).encode_bytes(),
        ],
        decode=SketchSpec.decode_bytes,
        errors=(ValueError,),
        encode=SketchSpec.encode_bytes,
    )


def _vector_decoder(rng: Rng, field_: PrimeField, length: int) -> Decoder:
    elements = rng.integers(0, field_.modulus, length, np.uint64).astype(field_.dtype)
    return Decoder(
        name=f"packed vector, {field_.bits} bits",
        seeds=[pack(FieldVector(field_, elements))],
        decode=lambda data: unpack(data, length, field_),
        errors=(ValueError,),
        encode=pack,
    )


def announcement_decoder() -> Decoder:
    """Announcements of rounds, with and without removable noise."""
    setups = [random_setup(np.random.default_rng([3, number]), number) for number in range(8)]
    return Decoder(
        name="announcement",
        seeds=[setup.announce() for setup in setups],
        decode=lambda data: RoundSetup.from_announcement(data, bytes(32)),
        errors=(RemoteProtocolError,),
        encode=RoundSetup.announce,
        one_form=False,
        mutations=(mutate_msgpack, mutate_msgpack),
    )


# -- files ------------------------------------------------------------------------------------


def ledger_decoder(folder: Path) -> Decoder:
    """Ledgers, damaged, and rewritten with hashes that fit."""
    path = folder / "ledger.jsonl"
    with Ledger.open(path) as ledger:
        release = BinomialRelease(1000, 12.5, 7, 30)
        ledger.append(release, {"round": 0, "cohort": ["0123456789abcdef"], "survivors": 3})
        ledger.append(NonPrivateRelease(), {})
        ledger.append(Composition((release, release)), {"round": 1})
    seed = path.read_bytes()

    def read(data: bytes) -> tuple[bytes, list[Any]]:
        path.write_bytes(data)
        with Ledger.open(path) as opened:
            events = [encode_event(event) for event in opened.events()]
        return path.read_bytes(), events

    return Decoder(
        name="ledger",
        seeds=[seed],
        decode=read,
        errors=(LedgerError,),
        encode=_ledger_again,
        # An empty file becomes a new ledger.
        one_form=False,
        mutations=(_mutate_ledger, _mutate_ledger),
    )


def _ledger_again(read: tuple[bytes, list[Any]]) -> bytes:
    """The ledger with every event as it is encoded now."""
    data, events = read
    lines = [json.loads(line) for line in data.splitlines()]
    for line in lines:
        if line["kind"] == "event":
            line["content"]["event"] = events.pop(0)
    return b"".join(canonical_json(line) + b"\n" for line in lines)


def _mutate_ledger(rng: Rng, data: bytes, pool: Sequence[bytes]) -> bytes:
    """Change one line and chain all lines anew, as somebody could who rewrites a file."""
    lines = data.splitlines()
    place = int(rng.integers(len(lines)))
    line = json.loads(lines[place])
    part = pick(rng, ["content", "content", "content", "kind", "index"])
    line[part] = json.loads(mutate_json(rng, canonical_json(line[part]), pool))
    lines[place] = json.dumps(line).encode()
    previous, chained = hashlib.sha256(b"veilsum-ledger/1").hexdigest(), []
    for raw in lines:
        body = {key: json.loads(raw)[key] for key in ("index", "kind", "content")}
        # NaN and infinities are no JSON, and the reader must say so.
        text = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
        digest = hashlib.sha256(bytes.fromhex(previous) + text).hexdigest()
        whole = {**body, "previous": previous, "hash": digest}
        chained.append(json.dumps(whole, sort_keys=True, separators=(",", ":")).encode())
        previous = digest
    return b"\n".join(chained) + b"\n"


def config_decoder(folder: Path) -> Decoder:
    """Configuration files of runs."""
    path = folder / "config.toml"

    def write(config: RunConfig) -> bytes:
        return tomli_w.dumps(config.model_dump(exclude_none=True)).encode()

    def read(data: bytes) -> RunConfig:
        path.write_bytes(data)
        config = load(path, RunConfig)
        config.check()
        return config

    return Decoder(
        name="configuration",
        seeds=[write(demo_config())],
        decode=read,
        errors=(ConfigurationError,),
        encode=write,
        one_form=False,
        mutations=(mutate_toml, mutate_toml),
    )
