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
from protocol.adapters.flower.node_state import NodeShelf
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
from protocol.adapters.party import OneShotParty, Party
from protocol.errors import ConfigurationError, PolicyError, TrainingFailedError
from protocol.exchange.remote import FROM_TRAINING, refuse, refuse_clause
from protocol.round.setup import RoundEncoding
from secagg import SERVER, Reason, RemoteProtocolError
from secagg.tags import Usage

REFUSED = 6
"""Flower's error code of a mod whose precondition does not hold."""

CallNext = Callable[[Message, Context], Message]


FindHome = Callable[[Context], ClientHome]

MEMBER_STEPS = frozenset({Step.CHECK, Step.SIGN, Step.OPEN})
"""What members of a committee are asked."""


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
        # The round is joined with this very digest, so training sees what was announced.
        update = partial(_trained_update, message, context, call_next)
        digest, history = _found(message, context), partial(home.history, home.policy)
        return _one_shot(home, context).upload(request.payload, digest, update, history)
    if request.step in MEMBER_STEPS:
        party, begins = _one_shot(home, context), request.step is Step.CHECK
        with home.member_history() as signed:
            return party.as_member(request.payload, signed, begins=begins)
    begins, update = request.step is Step.ADVERTISE, partial(_update, message, context, call_next)
    with home.history(home.policy) as opened:
        return _party(home, context).stage(
            request.payload, request.digest, update, opened, begins=begins
        )


def _party(home: ClientHome, context: Context) -> Party:
    return Party(
        identity=home.identity,
        registry=home.registry,
        policy=home.policy,
        keys=home.round_keys(),
        shelf=NodeShelf(context),
        clock=Clock().unix,
    )


def _one_shot(home: ClientHome, context: Context) -> OneShotParty:
    party = _party(home, context)
    return OneShotParty(
        party=party, shelf=party.shelf, uploads=home.uploads(), sealing=home.sealing()
    )


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
    return signed + _one_shot(home, context).key(asked)


def claimed(run_id: int, node_id: int, challenge: bytes) -> tuple[bytes, ...]:
    """What a claim is about."""
    return str(run_id).encode(), str(node_id).encode(), challenge


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
