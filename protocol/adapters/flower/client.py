"""The client's half: a mod that lets nothing but masked updates out of training.

Flower makes mods when it imports the app, so this one reads everything it needs at each call. A
TRAIN message that does not carry the protocol is refused: otherwise the server would only have to
ask for the plain update. The app's training function runs at one stage, on the very message whose
content was announced two stages before, under a header of our own; of its answer, only the update
goes on, into the masked vector. Its metrics stay here: they are computed from the same data, and
nobody noises them.

Whatever goes wrong, in training, in encoding or in this node's own files, ends in one refusal:
Flower would send the type and the words of an exception to the server, and both may depend on the
data. So does a `SystemExit` of training. Flower's own, on a signal, may come while it trains as
well; its process is ended by a thread all the same, five seconds later.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from flwr.app import (
    DEFAULT_TTL,
    ArrayRecord,
    Context,
    Error,
    Message,
    MessageType,
    Metadata,
    RecordDict,
)
from numpy.typing import NDArray

from protocol.adapters.flower.arrays import Layout
from protocol.adapters.flower.clear import permission
from protocol.adapters.flower.digest import in_order, input_digest
from protocol.adapters.flower.errors import AmbiguousMessageError
from protocol.adapters.flower.home import ClientHome, home_of
from protocol.adapters.flower.log import warn
from protocol.adapters.flower.member import MEMBER_STEPS, member_answer
from protocol.adapters.flower.node_state import keep_stored, take_stored
from protocol.adapters.flower.record import (
    CHALLENGE_BYTES,
    CLAIM,
    Request,
    Step,
    answer_content,
    category,
    read_request,
    without_request,
)
from protocol.adapters.flower.waiting import Clock
from protocol.errors import ConfigurationError, PolicyError, TrainingFailedError
from protocol.exchange import sealing_book
from protocol.exchange.remote import (
    FROM_TRAINING,
    MESSAGE,
    RemoteClient,
    refuse,
    refuse_clause,
)
from protocol.exchange.remote_one_shot import RemoteUploader
from protocol.round.client import RoundClient
from protocol.round.one_shot_client import OneShotRoundClient
from protocol.round.setup import RoundEncoding
from secagg import SERVER, Reason, RemoteProtocolError
from secagg.tags import Usage

REFUSED = 6
"""Flower's error code of a mod whose precondition does not hold."""

CallNext = Callable[[Message, Context], Message]


FindHome = Callable[[Context], ClientHome]


def secure_mod(message: Message, context: Context, call_next: CallNext) -> Message:
    """The mod: `ClientApp(mods=[secure_mod])`, or `@app.train(mods=[secure_mod])`.

    Other mods of training go after it in the list, between it and the training function.
    """
    return guarded(home_of, message, context, call_next)


def guarded(find: FindHome, message: Message, context: Context, call_next: CallNext) -> Message:
    """What `secure_mod` does, of a client whose folder `find` knows."""
    with suppress(ConfigurationError):  # what is wrong is told to whom it concerns, below
        find(context).expire()
    try:
        if category(message.metadata.message_type) != MessageType.TRAIN:
            return _other(find, message, context, call_next)
        request = read_request(message.content)
        if request is None:
            raise PolicyError("training", "for a plain update", "requests of the protocol only")
    except Exception as error:
        # This answer goes to a server that does not speak our protocol.
        _tell(error)
        reason = _refusal(find, error, context)[1:].decode()
        return Message(Error(REFUSED, reason), reply_to=message)
    try:
        data = _answer(find(context), request, message, context, call_next)
    except Exception as error:
        _tell(error)
        data = _refusal(find, error, context)
    return Message(answer_content(data), reply_to=message)


def _refusal(find: FindHome, error: Exception, context: Context) -> bytes:
    """What the server hears; which clause it was, only if our policy says that it may."""
    if isinstance(error, PolicyError):
        with suppress(Exception):  # what is wrong may be our folder: then nothing is named
            if find(context).rules.name_refused_clauses:
                return refuse_clause(error)
    return refuse(error)


def _tell(error: Exception) -> None:
    """Tell our own operator everything."""
    warn(f"refused: {type(error).__name__}: {error}", error)


def _other(find: FindHome, message: Message, context: Context, call_next: CallNext) -> Message:
    """Evaluation and queries: none of ours, and only if this client permits answers as they are."""
    kind = message.metadata.message_type
    key = permission(kind)
    if key is None or not getattr(find(context).rules, key):
        unless = f", as its policy does not say {key} = true" if key else ""
        raise PolicyError("message type", kind, "training only" + unless)
    try:
        return call_next(message, context)
    except FROM_TRAINING as error:
        raise TrainingFailedError(f"the app: {type(error).__name__}: {error}") from error


def _answer(
    home: ClientHome, request: Request, message: Message, context: Context, call_next: CallNext
) -> bytes:
    if request.step is Step.HELLO:
        return CLAIM + claim(home, context, request.payload)
    if request.step is Step.UPLOAD:
        return _uploaded(home, request, message, context, call_next)
    if request.step in MEMBER_STEPS:
        return member_answer(home, request, context)
    policy = home.policy
    with home.history(policy) as history:
        client = RoundClient(home.identity, home.registry, policy, history, clock=Clock().unix)
        stored = take_stored(context)
        if request.step is Step.ADVERTISE:
            # A round that was not finished never will be, nor can that of a run that is over, whose
            # state Flower has dropped: a node is in one round at a time.
            home.round_keys().clear()
            digest = request.digest
        else:
            client.resume(stored, home.round_keys())
            digest = client.setup.parameters.model_digest
        update = partial(_update, message, context, call_next)
        remote = RemoteClient(client, digest, update)
        reply = remote.answer(request.payload)
        if not remote.is_over:
            keep_stored(context, client.suspend(home.round_keys()))
    return reply


def claim(home: ClientHome, context: Context, challenge: bytes) -> bytes:
    """Our identity key, and a signature that ties it to this node, run and challenge.

    If a round of a session is named behind the challenge, also our sealing key for it, as a member
    of its committees.
    """
    identity, asked = home.identity, challenge[CHALLENGE_BYTES:]
    about = claimed(context.run_id, context.node_id, challenge)
    signed = identity.public + identity.sign(Usage.NODE, *about)
    if not asked:
        return signed
    if home.rules.committee is None:
        raise PolicyError("protocol", "one-shot", "pairwise: no committee is trusted")
    return signed + home.sealing().begin(identity, *sealing_book.read_request(asked)).entry.encode()


def claimed(run_id: int, node_id: int, challenge: bytes) -> tuple[bytes, ...]:
    """What a claim is about."""
    return str(run_id).encode(), str(node_id).encode(), challenge


def _uploaded(
    home: ClientHome, request: Request, message: Message, context: Context, call_next: CallNext
) -> bytes:
    """Our whole part in a one-shot round: train, mask, and be done.

    If the reply was lost and the server asks again, the same bytes are sent again.
    """
    uploads = home.uploads()
    if (sent := uploads.again(request.payload, Clock().unix)) is not None:
        return MESSAGE + sent
    with home.history(home.policy) as history:
        # A node is in one round at a time, as a client and as a member.
        home.round_keys().clear()
        take_stored(context)
        uploads.begin()
        client = OneShotRoundClient(
            home.identity, home.registry, home.policy, history, clock=Clock().unix
        )
        # The round is joined with this very digest, so training sees what was announced.
        update = partial(_trained_update, message, context, call_next)
        remote = RemoteUploader(client, _found(message, context), update)
        reply = remote.answer(request.payload)
        uploads.keep(client.receipt, reply[len(MESSAGE) :])
    return reply


def _found(message: Message, context: Context) -> bytes:
    """The digest of all that training would see of a message."""
    seen, metadata = without_request(message.content), message.metadata
    return input_digest(seen, metadata.message_type, metadata.group_id, context.run_config)


def _update(
    message: Message, context: Context, call_next: CallNext, setup: RoundEncoding
) -> NDArray[Any]:
    """Train, on what was announced two stages before and on nothing else."""
    if _found(message, context) != setup.parameters.model_digest:
        raise RemoteProtocolError(
            SERVER, Reason.WRONG_CONTEXT, "the model sent for training is not the one announced"
        )
    return _trained_update(message, context, call_next, setup)


def _trained_update(
    message: Message, context: Context, call_next: CallNext, _: RoundEncoding
) -> NDArray[Any]:
    """Train on a message whose digest is the round's: float64[d], what training changed."""
    seen, metadata = without_request(message.content), message.metadata
    received = only_arrays(seen)
    layout = Layout.of(received)
    # The message may be changed by those who handle it; what it held is kept for the difference.
    before = ArrayRecord(dict(received))
    context.run_config = in_order(context.run_config)
    shown = Message(metadata=_header(metadata, context), content=seen)
    return layout.difference(_trained(shown, context, call_next), before)


def _header(received: Metadata, context: Context) -> Metadata:
    """Of the message that training is given: what is in the digest, and else the same everywhere.

    Numbers and lifetimes of messages are the server's to choose, for each client others; training
    can be answered all the same, and the answer's header goes nowhere.
    """
    return Metadata(
        run_id=context.run_id,
        message_id="",
        src_node_id=0,
        dst_node_id=context.node_id,
        reply_to_message_id="",
        group_id=received.group_id,
        created_at=Clock().unix(),
        ttl=DEFAULT_TTL,
        message_type=received.message_type,
    )


def _trained(message: Message, context: Context, call_next: CallNext) -> ArrayRecord:
    """The model in the training function's answer.

    Raises:
        TrainingFailedError: it raised, or answered with something else. Flower would tell the
            server what an exception says; here the words stay with our operator. An error of ours
            that it raised itself is no exception: it would be taken for the protocol's.
    """
    try:
        reply = call_next(message, context)
        if reply.has_error():
            raise TrainingFailedError(f"it answered with an error: {reply.error.reason}")
        return only_arrays(reply.content)
    except FROM_TRAINING as error:
        raise TrainingFailedError(f"training: {type(error).__name__}: {error}") from error


def only_arrays(content: RecordDict) -> ArrayRecord:
    """The one model in a content."""
    records = list(content.array_records.values())
    if len(records) != 1:
        raise AmbiguousMessageError(f"{len(records)} array records; valid: exactly one, the model")
    return records[0]
