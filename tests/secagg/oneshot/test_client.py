"""A one-shot client: one upload, the same bytes again, and no key for two vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import one_shot_rounds as kit
import pytest
from msgspec.structs import replace
from single_use import Asked, SingleUseTests

from secagg import (
    FieldVector,
    LocalProtocolError,
    ParameterError,
    PrimeField,
    SessionAbortedError,
)
from secagg.field import centre
from secagg.keys import SecretSeed
from secagg.oneshot import client as client_module
from secagg.oneshot.client import OneShotClient
from secagg.oneshot.context import OneShotContext
from secagg.oneshot.header import Header, seed_commitment
from secagg.oneshot.messages import Upload, decode_upload
from secagg.oneshot.packing import scale_for
from secagg.oneshot.public_element import PublicElements
from secagg.oneshot.states import Seeded
from secagg.oneshot.transitions import ClientPhase, Local
from secagg.oneshot.wire import decode
from secagg.tags import Usage, derive

CONTEXT = kit.context(removal=(0b11, 0b01))


def client(
    context: OneShotContext = CONTEXT, index: int = 1, name: object = "root"
) -> OneShotClient:
    """A client with known randomness."""
    proof = kit.cohort(context.size).proof(index)
    return OneShotClient(context, index, kit.identity("client", index), proof, kit.Stream(name))


def vector(start: int = 0, context: OneShotContext = CONTEXT) -> FieldVector:
    values = np.arange(start, start + context.length, dtype=context.field.dtype)
    return FieldVector(context.field, values)


def seeded(**options: Any) -> OneShotClient:
    session = client(**options)
    session.seeds(b"rounded")
    return session


# -- what is uploaded -----------------------------------------------------------------------------


def test_an_upload_and_the_state_after_it() -> None:
    session = client()
    _, *removable = session.seeds(b"rounded")
    assert len(removable) == CONTEXT.seeds == 2
    given = vector()
    before = given.elements.copy()
    message = session.submit(given)
    assert np.array_equal(given.elements, before)
    assert isinstance(message, Upload)
    header = Header.of(message)
    assert header.is_signed(CONTEXT, kit.identity("client", 1).public)
    assert header.has_good_key()
    assert session.header_digest == header.digest(CONTEXT)
    wanted = [seed_commitment(CONTEXT, 1, i, each.expose()) for i, each in enumerate(removable)]
    assert message.commitments == b"".join(wanted)


def test_nothing_secret_is_left_after_the_upload() -> None:
    session = seeded()
    session.submit(vector())
    state = session._state
    held = [getattr(state, name) for name in type(state).__slots__]
    assert all(type(value) is bytes for value in held)
    assert set(type(state).__slots__) == {"upload", "header_digest"}
    assert b"elements" not in repr(state).encode()


def test_no_secret_is_printed() -> None:
    session = seeded()
    root = session._state.root.expose()
    assert "<secret>" in repr(session._state)
    assert root.hex() not in repr(session._state)
    session.submit(vector())
    assert "upload=" not in repr(session._state)


@pytest.mark.parametrize(("bits", "length"), [(12, 6), (12, 8), (11, 7), (13, 7)])
def test_input_of_another_shape(bits: int, length: int) -> None:
    session, field = seeded(), PrimeField(bits)
    with pytest.raises(ParameterError, match="vector"):
        session.submit(FieldVector(field, field.zeros(length)))
    assert_over(session)


@pytest.mark.parametrize("index", [-1, 5, 6])
def test_a_client_needs_a_place(index: int) -> None:
    with pytest.raises(ParameterError, match=r"^index = "):
        OneShotClient(CONTEXT, index, kit.identity("client", 1), b"")


@pytest.mark.parametrize("change", ["identity", "index", "proof", "cohort"])
def test_a_client_that_is_not_shown_to_be_invited_refuses(change: str) -> None:
    """Its own entry is all that it sees of the cohort: without it the cohort is anybody's."""
    index, identity, proof = 1, kit.identity("client", 1), kit.cohort(5).proof(1)
    if change == "identity":
        identity = kit.identity("stranger", 1)
    elif change == "index":
        index = 2
    elif change == "proof":
        proof = proof[:-1] + bytes([proof[-1] ^ 1])
    else:
        proof = kit.cohort(6).proof(1)
    with pytest.raises(ParameterError, match=r"^proof = "):
        OneShotClient(CONTEXT, index, identity, proof)


# -- one upload -----------------------------------------------------------------------------------


def assert_over(session: OneShotClient) -> None:
    assert session.phase is ClientPhase.ABORTED
    for use in USES.values():
        with pytest.raises(SessionAbortedError):
            use(session)
    with pytest.raises(SessionAbortedError):
        session.header_digest  # noqa: B018
    with pytest.raises(SessionAbortedError):
        session.hand_over()


USES: dict[Local, Callable[[OneShotClient], Any]] = {
    Local.SEEDS: lambda session: session.seeds(b"rounded"),
    Local.INPUT: lambda session: session.submit_bytes(vector()),
    Local.RESEND: lambda session: session.resend_bytes(),
}


@pytest.mark.parametrize("phase", [ClientPhase.FRESH, ClientPhase.SEEDED])
def test_there_is_no_upload_before_there_is_one(phase: ClientPhase) -> None:
    session = client() if phase is ClientPhase.FRESH else seeded()
    with pytest.raises(LocalProtocolError, match="nothing is uploaded"):
        session.header_digest  # noqa: B018
    assert session.phase is phase


def test_seeds_of_a_session_that_moved_on_meanwhile_are_not_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another thread has uploaded between the step and the look at the state."""
    session = client()
    real = OneShotClient._step

    def overtaken(self: OneShotClient, event: Any, payload: Any) -> Any:
        done = real(self, event, payload)
        if event is Local.SEEDS:
            real(self, Local.INPUT, vector())
        return done

    monkeypatch.setattr(OneShotClient, "_step", overtaken)
    with pytest.raises(LocalProtocolError, match="uploaded"):
        session.seeds(b"rounded")
    assert session.phase is ClientPhase.UPLOADED


def test_a_source_of_secrets_that_aborts_ends_the_session() -> None:
    def rand(size: int) -> bytes:
        session.abort()
        return bytes(size)

    proof = kit.cohort(5).proof(1)
    session = OneShotClient(CONTEXT, 1, kit.identity("client", 1), proof, rand)
    with pytest.raises(SessionAbortedError):
        session.seeds(b"rounded")
    assert session.phase is ClientPhase.ABORTED


class TestSharing(SingleUseTests):
    """One state makes one upload: two vectors under one key would show their difference."""

    @pytest.fixture
    def asked(self) -> Asked:
        return Asked(
            session=seeded(),
            module=client_module,
            event=(ClientPhase.SEEDED, Local.INPUT),
            ask=lambda session, story: session.submit(vector(story)),
            ask_bytes=None,
            aborted=ClientPhase.ABORTED,
        )


# -- retries --------------------------------------------------------------------------------------


def test_an_upload_is_sent_again_as_the_same_bytes() -> None:
    session = seeded()
    data = session.submit_bytes(vector())
    assert [session.resend_bytes() for _ in range(3)] == [data] * 3
    assert session.phase is ClientPhase.UPLOADED


def test_the_server_counts_what_was_sent_again_once() -> None:
    round_ = kit.Round(kit.context())
    round_.collect({2})
    again = round_.clients[2].resend_bytes()
    round_.server.receive_upload(2, again)
    for _ in range(3):
        round_.pass_on()
    opened = round_.server.open()
    assert opened.vector.elements.tolist() == round_.expected(range(5))


def set_back(session: OneShotClient) -> OneShotClient:
    """A machine set back to before the upload: another session in the same state."""
    again = client()
    again._state = session._state
    return again


def recorded(
    monkeypatch: pytest.MonkeyPatch, session: OneShotClient, given: FieldVector
) -> dict[str, Any]:
    """What an upload is made of, as `mask` was called: key and errors."""
    seen: dict[str, Any] = {}
    real = client_module.mask

    def spying(packing: Any, public: bytes, key: Any, error_key: bytes, values: Any) -> Any:
        seen.update(key=key, error_key=error_key, public=public)
        return real(packing, public, key, error_key, values)

    with monkeypatch.context() as patched:
        patched.setattr(client_module, "mask", spying)
        seen["upload"] = session.submit(given)
    return seen


def test_a_machine_that_is_set_back_sends_the_same_bytes_for_the_same_vector() -> None:
    first = seeded()
    second = set_back(first)
    assert first.submit_bytes(vector()) == second.submit_bytes(vector())


def test_a_machine_that_is_set_back_has_another_key_for_another_vector(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Key, errors, polynomials and ephemeral key: with the same root, nothing is the same."""
    first = seeded()
    second = set_back(first)
    one, other = (
        recorded(monkeypatch, session, vector(start))
        for start, session in enumerate((first, second))
    )
    assert one["public"] == other["public"]
    # Two independent keys agree in about one entry of sixteen.
    assert np.count_nonzero(one["key"] == other["key"]) < len(one["key"]) / 4
    assert one["error_key"] != other["error_key"]
    assert one["upload"].ephemeral_key != other["upload"].ephemeral_key
    assert one["upload"].seals != other["upload"].seals


@pytest.mark.parametrize("which", ["context", "index", "rounded"])
def test_keys_depend_on_everything_that_is_uploaded(
    monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    """The same randomness, read in another round, by another client, for other noise."""
    first = seeded()
    if which == "context":
        second = seeded(context=kit.context(removal=(0b11, 0b01), round_number=4))
    elif which == "index":
        second = seeded(index=2)
    else:
        second = client()
        second.seeds(b"other")
    states = [first._state, second._state]
    assert isinstance(states[0], Seeded)
    assert isinstance(states[1], Seeded)
    assert states[0].root == states[1].root
    assert not set(_exposed(states[0].removable)) & set(_exposed(states[1].removable))
    keys = [recorded(monkeypatch, each, vector())["key"] for each in (first, second)]
    assert np.count_nonzero(keys[0] == keys[1]) < len(keys[0]) / 4


def _exposed(seeds: tuple[SecretSeed, ...]) -> list[bytes]:
    return [seed.expose() for seed in seeds]


def test_seeds_of_one_client_differ() -> None:
    assert len(set(_exposed(client().seeds(b"rounded")))) == 1 + CONTEXT.seeds


def difference(context: OneShotContext, first: Upload, second: Upload) -> Any:
    """Two ciphertexts under one key and the same errors, subtracted: Delta (m - m')."""
    residues = [
        decode(context.packing, context.length, each.ciphertext).residues.astype(np.int64)
        for each in (first, second)
    ]
    (p,) = context.ring.primes
    found = (residues[0] - residues[1])[0] % p
    return np.where(found > p // 2, found - p, found)


def test_a_key_of_the_root_alone_would_show_the_difference_of_two_vectors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The twin: what is derived does not depend on the vector. Set back, it gives it away.

    One coordinate in a coefficient: the difference of two uploads is Delta times that of the
    vectors, no committee asked. With the keys as they are it is uniform.
    """
    context = kit.context(bits=16, length=200)
    assert context.packing.per == 1
    rng = np.random.default_rng(5)
    vectors = [
        FieldVector(
            context.field,
            rng.integers(0, context.field.modulus, 200, np.uint64).astype(context.field.dtype),
        )
        for _ in range(2)
    ]
    wanted = centre(vectors[0]) - centre(vectors[1])
    delta = scale_for(context.size)

    def uploads() -> list[Upload]:
        first, second = seeded(context=context), client(context)
        second._state = first._state
        return [each.submit(given) for each, given in zip((first, second), vectors, strict=True)]

    safe = difference(context, *uploads())
    with monkeypatch.context() as patched:
        patched.setattr(
            client_module.UploadSecrets,
            "derived",
            lambda self, label, length: derive(
                self._root.expose(), Usage.UPLOAD_SECRETS, length, label, context.hash
            ),
        )
        broken = difference(context, *uploads())
    (p,) = context.ring.primes
    lost = (wanted * delta + p // 2) % p - p // 2
    assert np.array_equal(broken, lost)
    assert np.count_nonzero(safe == lost) <= 1
    # Not even nearly: errors of two uploads that differ would be some tens.
    assert np.count_nonzero(np.abs(safe - lost) < 1000) <= 3


def test_the_public_elements_are_those_of_the_context() -> None:
    """Two rounds have other elements, so that one key under both is no help."""
    contexts = [kit.context(round_number=number) for number in (3, 4)]
    first, second = (PublicElements(each.ring, each.public_key).expand(0, 1) for each in contexts)
    assert np.count_nonzero(first == second) <= 2


def test_an_upload_replaced_in_flight_is_not_ours() -> None:
    session = seeded()
    data = session.submit_bytes(vector())
    message = decode_upload(data, 1, len(data))
    forged = replace(message, ciphertext=message.ciphertext[:-1] + b"\0")
    assert Header.of(forged).digest(CONTEXT) != session.header_digest
    assert not Header.of(forged).is_signed(CONTEXT, kit.identity("client", 1).public)
