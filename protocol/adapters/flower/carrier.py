"""Carries the stages of one round over a Flower grid: the `Exchange` of `protocol.exchange.stages`.

Messages are pushed, and replies pulled as they come, so the server holds one vector and not one for
each client. The model travels with the stage that training is in, and only to clients that are
still there then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from protocol.adapters.evaluation import bound_digest
from protocol.adapters.flower.record import (
    ANNOUNCED,
    KEY,
    REPEATED,
    SURVEYED,
    TRAINING,
    Request,
    Step,
    read_answer,
    was_lost,
)
from protocol.adapters.flower.waiting import Clock, Wait
from protocol.adapters.stage_times import FIRST_SECONDS, TRAINING_SECONDS
from protocol.exchange.one_shot import Announcements, MemberMessages, MemberStage
from protocol.exchange.remote import MESSAGE, OTHER
from protocol.exchange.remote_one_shot import MemberSource
from protocol.exchange.stages import Outbound, Refusal
from protocol.round.losses import Stage
from protocol.statistics.survey import Survey

_LONGEST_ROUND = len(Stage) + 2
"""Stages of a round, with those in which nodes say who they are, and whether they come."""

TTL_SLACK_SECONDS = 600.0
"""Lifetime of a message beyond its stage. It only cleans up: clocks of hosts may differ, and
Flower drops what is past its time by any of them."""


@dataclass(frozen=True, slots=True)
class Job:
    """What a strategy wants trained.

    Attributes:
        content: for the training function, of every node's message.
        message_type: such as "train".
        group_id: as the strategy set it.
        digest: `input_digest` of all this.
        survey: what an evaluation asks; None in training.
    """

    content: RecordDict
    message_type: str
    group_id: str
    digest: bytes
    survey: Survey | None = None

    @property
    def bound(self) -> bytes:
        """What the round is bound to."""
        return bound_digest(self.digest, self.survey)

    def message(self, node: int, request: Request, seconds: float) -> Message:
        """A request to a node, with the model if it is time to train."""
        content = RecordDict(dict(self.content) if request.step in TRAINING else {})
        if self.survey is not None and request.step in SURVEYED:
            request = replace(request, survey=self.survey.written())
        content[KEY] = request.record()
        return Message(
            content,
            node,
            self.message_type,
            ttl=seconds + TTL_SLACK_SECONDS,
            group_id=self.group_id,
        )


@dataclass(frozen=True, slots=True)
class Patience:
    """The longest waits for a stage, in seconds.

    Attributes:
        stage: of one without training; if None, by what it sends and how long a trip takes.
        training: of the one with training.
    """

    stage: float | None = None
    training: float = TRAINING_SECONDS

    def of(self, step: Step) -> float:
        """The longest wait for a step, in seconds."""
        if step in TRAINING:
            return self.training
        return FIRST_SECONDS if self.stage is None else self.stage

    @property
    def whole(self) -> float:
        """The longest time that a round can take, in seconds."""
        return self.training + _LONGEST_ROUND * self.of(Step.HELLO)


@dataclass(frozen=True, slots=True)
class Repeat:
    """How nodes are asked again that have sent no answer: with the same bytes, once.

    A node that has answered sends the same bytes again; of one that is still at it, the first
    answer counts, to whichever message.

    Attributes:
        message: what the node of a number is sent.
        left: seconds before the end, at which silent ones are asked. One whose message or answer
            Flower has lost is asked at once.
    """

    message: Callable[[int], Message]
    left: float


class Post:
    """Sends messages over a grid and collects what comes back in time.

    Args:
        clock: seconds.
    """

    def __init__(self, grid: Grid, clock: Clock) -> None:
        self._grid = grid
        self._clock = clock
        self.exchanges = 0
        self.trip: float | None = None

    def exchange(
        self,
        messages: Iterable[tuple[int, Message]],
        seconds: float,
        repeat: Repeat | None = None,
    ) -> Iterator[tuple[int, bytes | Refusal]]:
        """Answers by the caller's own numbers, as they come; silent nodes are left out.

        Afterwards `trip` says when the last answer came, in seconds; None without answers.
        """
        self.exchanges += 1
        self.trip, start = None, self._clock.now()
        waiting, wait = _Waiting(self._grid, repeat), Wait(self._clock, seconds)
        for number, message in messages:
            # One by one: of several, Flower does not always say which could not be sent.
            if not waiting.send(number, message):
                yield number, Refusal("its message could not be sent")
        while waiting.numbers:
            for number, answer in waiting.pull():
                wait.stir()
                self.trip = self._clock.now() - start
                yield number, answer
            if waiting.numbers and not wait.again(repeat.left if repeat else 0.0):
                if repeat is None or wait.left == 0.0:
                    break
                waiting.repeat_all()
                repeat = None
        yield from waiting.held.items()


class _Waiting:
    """Messages of one exchange that are not answered yet."""

    def __init__(self, grid: Grid, repeat: Repeat | None) -> None:
        self._grid = grid
        self._repeat = repeat
        self._sent: dict[str, int] = {}
        self._repeated: dict[str, int] = {}
        self.held: dict[int, bytes | Refusal] = {}

    @property
    def numbers(self) -> set[int]:
        """Whose answers may still come."""
        return {*self._sent.values(), *self._repeated.values()}

    def send(self, number: int, message: Message) -> bool:
        """Send a first message; False if that cannot be done."""
        return self._push(self._sent, number, message)

    def pull(self) -> Iterator[tuple[int, bytes | Refusal]]:
        """What has come since."""
        for reply in self._grid.pull_messages([*self._sent, *self._repeated]):
            asked = reply.metadata.reply_to_message_id
            again = asked in self._repeated
            number = (self._repeated if again else self._sent).pop(asked, None)
            if number is None:
                continue
            answer = read_answer(reply)
            refused = isinstance(answer, Refusal) or answer[:1] != MESSAGE
            if was_lost(reply) and not again and self._ask_again(number):
                continue
            if refused and number in self.numbers:
                # One of two: as long as the other may bring the upload, this is not the answer.
                self.held[number] = answer
                continue
            self._forget(number)
            yield number, answer

    def repeat_all(self) -> None:
        """Ask all again that are silent."""
        for number in sorted(set(self._sent.values()) - set(self._repeated.values())):
            self._ask_again(number)

    def _ask_again(self, number: int) -> bool:
        if self._repeat is None or number in self._repeated.values() or number in self.held:
            return False
        return self._push(self._repeated, number, self._repeat.message(number))

    def _push(self, sent: dict[str, int], number: int, message: Message) -> bool:
        found = [each for each in self._grid.push_messages([message]) if each]
        sent.update(dict.fromkeys(found, number))
        return bool(found)

    def _forget(self, number: int) -> None:
        self.held.pop(number, None)
        for sent in (self._sent, self._repeated):
            for each in [each for each, of in sent.items() if of == number]:
                del sent[each]


class Carrier:
    """Carries rounds, one after the other: see `protocol.schemes.scheme.Carrier`.

    Args:
        members: gives the members' signed keys, as `members` there.
    """

    def __init__(self, post: Post, members: MemberSource) -> None:
        self._post = post
        self.members = members
        self.lost: dict[int, str] = {}

    def begin(
        self,
        job: Job,
        nodes: Sequence[int | None],
        patience: Patience,
        whole: Wait,
        members: Sequence[int | None],
        signed: bytes = b"",
    ) -> None:
        """Turn to the next round.

        Args:
            nodes: by index in the cohort; None for a client that is away.
            members: likewise, by index in the committee.
            signed: what an announcer signed of it; empty if nobody does.
        """
        self._signed = signed
        self._job, self._nodes, self._members = job, nodes, members
        self._patience, self._whole = patience, whole
        self._stage: str = str(Step.ADVERTISE.value)
        self.lost = {}

    def exchange(
        self, stage: Stage, outbound: Outbound, /
    ) -> Iterator[tuple[int, bytes | Refusal]]:
        """See `protocol.exchange.stages.Exchange`. Afterwards `lost` says why, by node."""
        step = Step.of(stage)
        digest = self._job.digest if step is Step.ADVERTISE else b""
        return self._carry(str(stage), step, self._nodes, outbound, digest)

    def collect(self, announcements: Announcements, /) -> Iterator[tuple[int, bytes | Refusal]]:
        """See `protocol.exchange.remote_one_shot.UploadExchange`; `lost` as for `exchange`."""
        return self._carry("upload", Step.UPLOAD, self._nodes, announcements)

    def consult(
        self, stage: MemberStage, messages: MemberMessages, /
    ) -> Iterator[tuple[int, bytes | Refusal]]:
        """See `protocol.exchange.one_shot.MemberExchange`; `lost` as for `exchange`."""
        return self._carry(str(stage), Step.of_member(stage), self._members, messages)

    def _carry(
        self,
        stage: str,
        step: Step,
        nodes: Sequence[int | None],
        outbound: Iterable[tuple[int, bytes]],
        digest: bytes = b"",
    ) -> Iterator[tuple[int, bytes | Refusal]]:
        self._stage = stage
        seconds = min(self._patience.of(step), self._whole.left)
        silent: dict[int, tuple[int, bytes]] = {}

        def message(index: int) -> Message:
            node, payload = silent[index]
            signed = self._signed if step in ANNOUNCED else b""
            return self._job.message(node, Request(step, payload, digest, b"", signed), seconds)

        def messages() -> Iterator[tuple[int, Message]]:
            # One at a time: those of a one-shot round are made when they are due, and kept until
            # they are answered, to be sent again.
            for index, payload in outbound:
                node = nodes[index]
                if node is not None:
                    silent[index] = node, payload
                    yield index, message(index)

        # Whoever has uploaded does so again soon, so the last of the time is enough for it.
        left = min(self._patience.of(Step.CHECK), seconds / 2)
        repeat = Repeat(message, left) if step in REPEATED else None
        for index, answer in self._post.exchange(messages(), seconds, repeat):
            silent.pop(index, None)
            yield index, answer
        late = (node for node, _ in silent.values())
        self.lost |= dict.fromkeys(late, f"{stage}: no answer in {seconds:.0f} s")

    def note(self, index: int, reason: str, /) -> None:
        """See `protocol.exchange.stages.LossHook`: a client is lost in the present stage."""
        self._note(self._nodes, index, reason)

    def note_member(self, index: int, reason: str, /) -> None:
        """The same of a member, by its index in the committee."""
        self._note(self._members, index, reason)

    def _note(self, nodes: Sequence[int | None], index: int, reason: str) -> None:
        node = nodes[index]
        if node is not None:
            self.lost[node] = f"{self._stage}: {_by_itself(index, reason)}"


def _by_itself(index: int, reason: str) -> str:
    """A reason, by node: without the number that the client has in its cohort."""
    if reason == OTHER:
        return "left for reasons that only its own log tells"
    words = reason.removeprefix(f"client {index}: ").removeprefix(f"member {index}: ")
    return reason if words == reason else f"its message was refused: {words}"
