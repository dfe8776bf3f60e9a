"""Rounds with clients elsewhere: what a transport has to carry, and nothing about how it does.

The server calls an `Exchange` once for each stage. The client answers one message at a time, in one
process or in a new one for each message. What travels is one byte string down and one up for each
stage: five round trips with the consistency round, four without, one more if a client goes away
after its upload and the noise has a surplus. The first message down is the round's announcement, so
a model can travel with it and be trained on before the masked update is due, two stages later.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any, ClassVar, TypeVar

from numpy.typing import NDArray

from protocol.errors import PolicyError, TrainingFailedError
from protocol.exchange.aggregators import UpdateSource, own_updates
from protocol.exchange.pairwise import pairwise_script
from protocol.exchange.stages import (
    CLIENT,
    Exchange,
    Inbound,
    LossHook,
    Messages,
    Refusal,
    ReleaseHook,
    RoundOutcome,
    conduct,
    no_hook,
    no_losses,
)
from protocol.round.client import RoundClient
from protocol.round.losses import NOBODY, Dropouts, Stage
from protocol.round.setup import RoundEncoding, RoundSetup, pairwise
from secagg import LocalProtocolError, ParameterError, RemoteProtocolError, ServerSession
from secagg.pairwise.transitions import ClientPhase

SetupT = TypeVar("SetupT")

MESSAGE, _REFUSAL = b"\0", b"\1"
"""First byte of an answer: of a message, or of a refusal."""
MAX_REASON_BYTES = 200
"""Of a client's reason for leaving: a stranger's words go into error messages."""

OTHER = "OwnReasons"
"""Why a client left that does not say."""

FROM_TRAINING = (Exception, SystemExit)
"""What is caught of code that sees data, and becomes a refusal. A process that ends instead of
answering can be told apart, and that training calls `sys.exit` may depend on the data. An operator
can still interrupt it."""

UpdateMaker = Callable[[RoundSetup], NDArray[Any]]
"""Makes a client's update when it is due: float32|float64[d]."""


class RemoteAggregator:
    """The server's side of rounds with clients elsewhere. An `Aggregator` for `PrivateTraining`.

    Args:
        exchange: the transport; it bounds the time of every stage.
        executor: optional, for unmasking.
        on_loss: told of each client that is lost for a refusal, in the stage in which it is.
    """

    def __init__(
        self,
        exchange: Exchange,
        executor: Executor | None = None,
        on_loss: LossHook = no_losses,
    ) -> None:
        self._exchange = exchange
        self._executor = executor
        self._on_loss = on_loss

    def run(
        self,
        setup: RoundEncoding,
        updates: UpdateSource = own_updates,
        dropouts: Dropouts = NOBODY,
        *,
        before_release: ReleaseHook = no_hook,
    ) -> RoundOutcome:
        """See `Aggregator.run`.

        Raises:
            ParameterError: updates or dropouts are given. They are the clients' own, and what is
                passed here would be ignored.
            LocalProtocolError: the transport delivered the answer of a client that was not asked.
        """
        require_elsewhere(updates, dropouts)
        setup = pairwise(setup)
        announcement = setup.announce()
        return conduct(
            pairwise_script(ServerSession(setup.context), setup.context.mode),
            [(index, announcement) for index in range(setup.context.size)],
            self._carry,
            before_release,
            self._executor,
            on_loss={CLIENT: self._on_loss},
        )

    def _carry(self, stage: Stage, messages: Messages) -> Inbound:
        return opened(CLIENT, partial(self._exchange, stage), messages)


def require_elsewhere(updates: UpdateSource, dropouts: Dropouts) -> None:
    """See that nothing is given that clients elsewhere have of their own."""
    if updates is not own_updates:
        raise ParameterError("updates", updates, "left out: remote clients make their own")
    if dropouts:
        raise ParameterError("dropouts", dict(dropouts), "empty: remote clients simply leave")


def opened(party: str, exchange: Callable[[Any], Inbound], messages: Messages) -> Inbound:
    """What comes back, refusals read, of those who were asked."""
    asked: set[int] = set()

    def noted(message: tuple[int, bytes]) -> tuple[int, bytes]:
        asked.add(message[0])
        return message

    passed = map(noted, messages)
    for index, answer in exchange(list(passed) if isinstance(messages, Sequence) else passed):
        # A transport that mixes up its parties would have one lost for another.
        if index not in asked:
            raise LocalProtocolError(f"{party} {index} answered without being asked")
        yield index, answer if isinstance(answer, Refusal) else open_answer(answer)


class RemoteParty(ABC):
    """A party's side of rounds elsewhere: answers the server's messages of one round, one by one.

    It leaves the round for good with the first error, whatever raised it; our client, or member, is
    aborted.
    """

    _OVER: ClassVar = "this client has left the round"

    def __init__(self, abort: Callable[[], None]) -> None:
        self._abort = abort
        self._left = False

    def answer(self, data: bytes) -> bytes:
        """What to send back.

        Raises:
            ProtocolError, PolicyError, PrivacyError: we leave the round. Send `refuse(error)`, so
                that the server need not wait, and tell whoever runs this client. Likewise with
                whatever else the update maker raises.
            TrainingFailedError: the update maker raised `SystemExit`; refuse as well.
            LocalProtocolError: we left before.
        """
        if self._left:
            raise LocalProtocolError(self._OVER)
        try:
            return MESSAGE + self._reply(data)
        except BaseException:
            # The update maker is the caller's and may raise anything, with secrets still held.
            self._left = True
            self._abort()
            raise

    @abstractmethod
    def _reply(self, data: bytes) -> bytes:
        """What our client or member answers."""


class RemoteClient(RemoteParty):
    """A `RoundClient`'s side.

    Args:
        client: ours, fresh or resumed.
        model_digest: 32-byte hash of the model that we received for this round.
        update: called once, when the update is due.
    """

    def __init__(self, client: RoundClient, model_digest: bytes, update: UpdateMaker) -> None:
        super().__init__(client.abort)
        self._client = client
        self._model_digest = model_digest
        self._update = update

    @property
    def is_over(self) -> bool:
        """Whether nothing more will be answered."""
        return self._left or self._client.phase in (ClientPhase.FINISHED, ClientPhase.ABORTED)

    def _reply(self, data: bytes) -> bytes:
        if self._client.phase is ClientPhase.FRESH:
            return self._client.join(data, self._model_digest)
        reply = self._client.receive(data)
        if reply is not None:
            return reply
        return self._client.submit(made(self._update, self._client.setup))


def made(update: Callable[[SetupT], NDArray[Any]], setup: SetupT) -> NDArray[Any]:
    """What an update maker makes; that it ends the process is an error like others."""
    try:
        return update(setup)
    except SystemExit as error:
        raise TrainingFailedError(f"training: SystemExit: {error}") from error


def reason_of(error: Exception) -> str:
    """What a server is told about an error: one of three words.

    They say whether it was for the policy, for what was sent, or for anything else, and no more.

    What an error says, and which one it is, may depend on what the client holds: that its update
    was not finite is nobody's business. Its own operator reads the error.
    """
    named = (PolicyError, RemoteProtocolError)
    return next((kind.__name__ for kind in named if isinstance(error, kind)), OTHER)


def refuse(error: Exception) -> bytes:
    """The answer of a client that leaves: `reason_of` the error, and no more."""
    return _REFUSAL + reason_of(error).encode()


def answer_or_refuse(client: RemoteParty, data: bytes) -> tuple[bytes, Exception | None]:
    """An answer for the server, and the error if we left the round.

    Any error is caught, a mistake in the program or in the update maker too: to whoever watches the
    wire, a client that crashes must look like one that refuses. Whoever runs the client has to tell
    its operator.
    """
    try:
        return client.answer(data), None
    except Exception as error:
        return refuse(error), error


def refuse_clause(error: PolicyError) -> bytes:
    """As `refuse`, for a client that chose to say which clause of its policy it was.

    By its name and without a value. Some clauses are about its own past: a budget, a round that it
    answered.
    """
    return refuse(error) + f": {error.parameter}".encode()


def open_answer(data: bytes) -> bytes | Refusal:
    """A client's message, or its refusal; whatever is neither counts as one."""
    if data[:1] == _REFUSAL:
        reason = bytes(data[1 : 1 + MAX_REASON_BYTES])
        return Refusal("".join(chr(c) if 32 <= c < 127 else "?" for c in reason))
    return bytes(data[1:]) if data[:1] == MESSAGE else Refusal("sent something that is no answer")
