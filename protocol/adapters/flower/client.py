"""The client's half: a mod that lets nothing but masked updates out of training.

Flower makes mods when it imports the app, so this one reads everything it needs at each call. A
TRAIN message that does not carry the protocol is refused: otherwise the server would only have to
ask for the plain update. The app's training function runs at one stage, on the very message whose
content was announced two stages before, under a header of our own; of its answer, only the update
goes on, into the masked vector. Its metrics stay here: they are computed from the same data, and
nobody noises them.

An evaluation that a run declares is such a round too: what its function answers is encoded as a
survey's integers, and nothing but their masked and noised sum leaves.

Whatever goes wrong, in training, in encoding or in this node's own files, ends in one refusal:
Flower would send the type and the words of an exception to the server, and both may depend on the
data. So does a `SystemExit` of training. Flower's own, on a signal, may come while it trains as
well; its process is ended by a thread all the same, five seconds later.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

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

from protocol.adapters.evaluation import bound_digest
from protocol.adapters.flower.admission import admitted
from protocol.adapters.flower.answering import allowed, answered
from protocol.adapters.flower.arrays import Layout
from protocol.adapters.flower.clear import permission
from protocol.adapters.flower.digest import in_order, input_digest
from protocol.adapters.flower.errors import AmbiguousMessageError
from protocol.adapters.flower.frozen import require_member, require_unfrozen
from protocol.adapters.flower.home import ClientHome, home_of
from protocol.adapters.flower.log import warn
from protocol.adapters.flower.node_state import NodeShelf
from protocol.adapters.flower.record import (
    CHALLENGE_BYTES,
    CLAIM,
    MEMBER_STAGES,
    SURVEYED,
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
from protocol.exchange.remote import FROM_TRAINING, MESSAGE, refuse, refuse_clause
from protocol.round.policy import ClientPolicy
from protocol.round.setup import RoundEncoding
from protocol.round.turns import Question
from protocol.statistics.survey import Survey
from secagg import SERVER, LocalProtocolError, Reason, RemoteProtocolError
from secagg.tags import Usage

REFUSED = 6
"""Flower's error code of a mod whose precondition does not hold."""

CallNext = Callable[[Message, Context], Message]


T = TypeVar("T")

FindHome = Callable[[Context], ClientHome]

PRIVATE = frozenset({MessageType.TRAIN, MessageType.EVALUATE})
"""Kinds of messages that the protocol travels in."""


def secure_mod(message: Message, context: Context, call_next: CallNext) -> Message:
    """The mod: `ClientApp(mods=[secure_mod])`, or `@app.train(mods=[secure_mod])`.

    Other mods of training go after it in the list, between it and the training function.
    """
    return guarded(home_of, message, context, call_next)


class _Process:
    """What this process is for."""

    trains_only = False


def train_unprotected() -> None:
    """From now on, let this process train on whatever it is given, as it is.

    For the process that a site's own process trains in, and which talks to nobody but that one:
    there the mod's part is done before and after it (`protocol.adapters.flower.site`).

    Raises:
        LocalProtocolError: this is another process.
    """
    main = getattr(sys.modules["__main__"], "__spec__", None)
    if main is None or main.name != "protocol.adapters.flower.site.inside":
        raise LocalProtocolError("only the process that a site trains in has no use for the mod")
    _Process.trains_only = True


def guarded(
    find: FindHome,
    message: Message,
    context: Context,
    call_next: CallNext,
    app: bytes | None = None,
) -> Message:
    """What `secure_mod` does, of a client whose folder `find` knows.

    Args:
        app: SHA-256 of the app's file, 32 bytes; None where nobody can know it.
    """
    if _Process.trains_only:
        return call_next(message, context)
    with suppress(ConfigurationError):  # what is wrong is told to whom it concerns, below
        find(context).expire()
    try:
        kind = category(message.metadata.message_type)
        request = read_request(message.content) if kind in PRIVATE else None
        if request is None and kind != MessageType.TRAIN:
            return _other(find, message, context, call_next)
        if request is None:
            raise PolicyError("training", "for a plain update", "requests of the protocol only")
    except Exception as error:
        # This answer goes to a server that does not speak our protocol.
        _tell(error)
        reason = _refusal(find, error, context)[1:].decode()
        return Message(Error(REFUSED, reason), reply_to=message)
    try:
        data = _answer(find(context), request, message, context, call_next, app)
        require_unfrozen(find(context).folder)  # maybe frozen since it began to train
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
    require_unfrozen(find(context).folder)
    kind = message.metadata.message_type
    key = permission(kind)
    if key is None or not getattr(find(context).rules, key):
        unless = f", as its policy does not say {key} = true" if key else ""
        raise PolicyError("message type", kind, "training only" + unless)
    try:
        reply = call_next(message, context)
    except FROM_TRAINING as error:
        raise TrainingFailedError(f"the app: {type(error).__name__}: {error}") from error
    require_unfrozen(find(context).folder)
    return reply


def _answer(
    home: ClientHome,
    request: Request,
    message: Message,
    context: Context,
    call_next: CallNext,
    app: bytes | None,
) -> bytes:
    require_unfrozen(home.folder)
    survey = _survey(home, request, message, context)
    # Before anything of the folder is used up, or erased.
    home = admitted(home, request, context.run_id, app, survey)
    if request.step is Step.HELLO:
        return CLAIM + claim(home, context, request.payload)
    if request.step is Step.TURN:
        return MESSAGE + home.answer(Question.read(request.payload))
    if (stage := MEMBER_STAGES.get(request.step)) is not None:
        party = _one_shot(home, context, home.policy)
        with home.member_history() as signed, home.adding() as adding:
            return party.as_member(request.payload, signed, stage, adding)
    policy = home.policy
    if survey is not None:
        policy = survey.policy(policy)
    if request.step is Step.UPLOAD:
        # The round is joined with this very digest, so the app sees what was announced.
        update = partial(_made, message, context, call_next, survey)
        digest, history = _found(message, context, survey), partial(home.history, policy)
        return _one_shot(home, context, policy).upload(request.payload, digest, update, history)
    update = partial(_update, message, context, call_next, survey)
    begins, digest = request.step is Step.ADVERTISE, bound_digest(request.digest, survey)
    with home.history(policy) as opened:
        return _party(home, context, policy).stage(
            request.payload, digest, update, opened, begins=begins
        )


def _survey(
    home: ClientHome, request: Request, message: Message, context: Context
) -> Survey | None:
    """What an evaluation asks, at the steps at which it says so."""
    kind = category(message.metadata.message_type)
    if kind != MessageType.EVALUATE or request.step not in SURVEYED:
        return None
    return allowed(request.survey, home.rules, context.run_config)


def _party(home: ClientHome, context: Context, policy: ClientPolicy) -> Party:
    return Party(
        identity=home.identity,
        registry=home.registry,
        policy=policy,
        keys=home.round_keys(),
        shelf=NodeShelf(context),
        clock=Clock().unix,
        turns=home.turns,
    )


def _one_shot(home: ClientHome, context: Context, policy: ClientPolicy) -> OneShotParty:
    party = _party(home, context, policy)
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
    require_member(home.folder, identity.public)
    return signed + _one_shot(home, context, home.policy).key(asked)


def claimed(run_id: int, node_id: int, challenge: bytes) -> tuple[bytes, ...]:
    """What a claim is about."""
    return str(run_id).encode(), str(node_id).encode(), challenge


def _found(message: Message, context: Context, survey: Survey | None) -> bytes:
    """The digest of all that the app would see of a message, and of the survey."""
    seen, metadata = without_request(message.content), message.metadata
    digest = input_digest(seen, metadata.message_type, metadata.group_id, context.run_config)
    return bound_digest(digest, survey)


def _update(
    message: Message,
    context: Context,
    call_next: CallNext,
    survey: Survey | None,
    setup: RoundEncoding,
) -> NDArray[Any]:
    """What goes into the sum, of what was announced two stages before and of nothing else."""
    if _found(message, context, survey) != setup.parameters.model_digest:
        raise RemoteProtocolError(
            SERVER, Reason.WRONG_CONTEXT, "the model sent for training is not the one announced"
        )
    return _made(message, context, call_next, survey, setup)


def _made(
    message: Message,
    context: Context,
    call_next: CallNext,
    survey: Survey | None,
    setup: RoundEncoding,
) -> NDArray[Any]:
    """The same, on a message whose digest is the round's.

    float64[d], what training changed; or int64[length], the answers to a survey.
    """
    if survey is not None:
        survey.check(setup.parameters)
        return _called(message, context, call_next, partial(answered, survey=survey))
    received = only_arrays(without_request(message.content))
    layout = Layout.of(received)
    # The message may be changed by those who handle it; what it held is kept for the difference.
    before = ArrayRecord(dict(received))
    return layout.difference(_called(message, context, call_next, only_arrays), before)


def shown_header(message_type: str, group_id: str, context: Context) -> Metadata:
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
        group_id=group_id,
        created_at=Clock().unix(),
        ttl=DEFAULT_TTL,
        message_type=message_type,
    )


def _called(
    message: Message, context: Context, call_next: CallNext, read: Callable[[RecordDict], T]
) -> T:
    """What is read in the answer of the app's function.

    Raises:
        TrainingFailedError: it raised, or answered with something else. Flower would tell the
            server what an exception says; here the words stay with our operator. An error of ours
            that it raised itself is no exception: it would be taken for the protocol's.
    """
    context.run_config = in_order(context.run_config)
    content = without_request(message.content)
    received = message.metadata
    header = shown_header(received.message_type, received.group_id, context)
    shown = Message(metadata=header, content=content)
    try:
        reply = call_next(shown, context)
        if reply.has_error():
            raise TrainingFailedError(f"it answered with an error: {reply.error.reason}")
        return read(reply.content)
    except FROM_TRAINING as error:
        raise TrainingFailedError(f"training: {type(error).__name__}: {error}") from error


def only_arrays(content: RecordDict) -> ArrayRecord:
    """The one model in a content."""
    records = list(content.array_records.values())
    if len(records) != 1:
        raise AmbiguousMessageError(f"{len(records)} array records; valid: exactly one, the model")
    return records[0]
