"""The record that carries the protocol inside Flower's messages.

Every protocol message is a TRAIN message, because a mod that guards training is called for nothing
else. A request names its step; the answer is bytes, made and read by `protocol.exchange.remote`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from flwr.app import ConfigRecord, Message, RecordDict

from protocol.exchange.one_shot import MemberStage
from protocol.exchange.stages import Refusal
from protocol.round.losses import Stage
from secagg import SERVER, Reason, RemoteProtocolError
from secagg.keys import KEY_BYTES, SIGNATURE_BYTES

KEY = "veilsum"
VERSION = 1
CLAIM = b"\0"
"""Before a node's claim: answers to a hello are marked as `RemoteClient` marks its own."""
CHALLENGE_BYTES = 32
CLAIM_BYTES = KEY_BYTES + SIGNATURE_BYTES
"""An identity key and its signature; behind them, if asked for, a sealing key for committees."""
MAX_REASON = 200
"""Characters of a stranger's reason that go into our messages."""


_CODES = {
    1: "could not load the app: is veilsum installed beside its SuperNode?",
    2: "raised an exception outside of secure_mod: is it the first of the app's mods?",
    3: "its message was lost or expired",
    4: "its reply was lost or expired",
    5: "is no longer connected",
    6: "refused the message: is secure_mod of the same version?",
    7: "has another app, or does not trust this one",
    8: "its app crashed: see its own log",
}
"""Flower's error codes in words."""
_LOST_ON_THE_WAY = frozenset({3, 4})
"""Those that say that a message or its reply was lost."""


class Step(enum.Enum):
    """What a request asks for."""

    HELLO = "hello"
    TURN = "turn"
    ADVERTISE = "advertise"
    SHARE = "share"
    INPUT = "input"
    CONFIRM = "confirm"
    UNMASK = "unmask"
    RECOVER = "recover"
    UPLOAD = "upload"
    CHECK = "check"
    SIGN = "sign"
    OPEN = "open"
    NOISE = "noise"

    @classmethod
    def of(cls, stage: Stage) -> Step:
        """The step of a stage of a pairwise round."""
        return cls(str(stage))

    @classmethod
    def of_member(cls, stage: MemberStage) -> Step:
        """The step of a stage in which members of a committee are asked."""
        return _MEMBER_STEPS[stage]


TRAINING = frozenset({Step.INPUT, Step.UPLOAD})
"""The step of a round that the model travels with."""

SURVEYED = TRAINING | {Step.ADVERTISE}
"""The steps that a survey travels with."""

MEMBER_ANNOUNCED = frozenset({Step.CHECK, Step.NOISE})
"""Steps of members that begin with an announcement: noise, where they add any, comes first."""

ANNOUNCED = frozenset({Step.ADVERTISE, Step.UPLOAD}) | MEMBER_ANNOUNCED
"""The first step of a round, of whoever is asked, and a member's check behind its noise."""

REPEATED = frozenset({Step.UPLOAD, Step.NOISE})
"""Steps that are asked again if no answer comes: whoever has answered sends the same bytes."""

_MEMBER_STEPS = {
    MemberStage.CHECK: Step.CHECK,
    MemberStage.CONFIRM: Step.SIGN,
    MemberStage.OPEN: Step.OPEN,
    MemberStage.NOISE: Step.NOISE,
}

MEMBER_STAGES = {step: stage for stage, step in _MEMBER_STEPS.items()}
"""What members of a committee are asked, by its step."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a node is asked.

    Attributes:
        step: which.
        payload: challenge of a hello, and the session if it asks for a sealing key; a `Question`
            whose turn it is; else the protocol's message.
        digest: with the announcement only: hash of what training will see two stages later.
        survey: with the announcement and with the model, what an evaluation asks; else empty.
        signed: what an announcer signed, at the first step of a round and when a sealing key or a
            turn is asked for; empty where nobody signs.
    """

    step: Step
    payload: bytes
    digest: bytes = b""
    survey: bytes = b""
    signed: bytes = b""

    def record(self) -> ConfigRecord:
        """The request as a record that Flower carries."""
        return ConfigRecord(
            {
                "version": VERSION,
                "step": self.step.value,
                "payload": self.payload,
                "digest": self.digest,
                **({"survey": self.survey} if self.survey else {}),
                **({"signed": self.signed} if self.signed else {}),
            }
        )


def category(message_type: str) -> str:
    """The part of a message's type before the dot: "train" of "train.action"."""
    return message_type.split(".", 1)[0]


def read_request(content: RecordDict) -> Request | None:
    """The request in a message; None if there is none."""
    record = content.get(KEY)
    if record is None:
        return None
    try:
        if not isinstance(record, ConfigRecord) or record["version"] != VERSION:
            raise ValueError("another version")
        optional = record.get("survey", b""), record.get("signed", b"")
        parts = record["payload"], record["digest"], *optional
        payload, digest, survey, signed = (part for part in parts if isinstance(part, bytes))
        return Request(Step(record["step"]), payload, digest, survey, signed)
    except (KeyError, ValueError) as error:
        raise RemoteProtocolError(SERVER, Reason.MALFORMED, f"request: {error}") from None


def asks_noise(content: RecordDict) -> bool:
    """Whether a message asks a member for its noise; it may be malformed otherwise."""
    record = content.get(KEY)
    return isinstance(record, ConfigRecord) and record.get("step") == Step.NOISE.value


def without_request(content: RecordDict) -> RecordDict:
    """What is left for training."""
    return RecordDict({name: record for name, record in content.items() if name != KEY})


def answer_content(data: bytes) -> RecordDict:
    """An answer as Flower carries it: our record, and nothing of the app's."""
    return RecordDict({KEY: ConfigRecord({"version": VERSION, "answer": data})})


def read_answer(reply: Message) -> bytes | Refusal:
    """The answer in a reply, or why there is none."""
    if reply.has_error():
        code = reply.error.code
        words = _CODES.get(code, "answered with an error")
        return Refusal(f"{words} (error {code}: {_tidy(str(reply.error.reason))})")
    record = reply.content.get(KEY)
    answer = record.get("answer") if isinstance(record, ConfigRecord) else None
    if not isinstance(answer, bytes):
        return Refusal("no answer of ours in its reply: is secure_mod in the app's mods?")
    return answer


def was_lost(reply: Message) -> bool:
    """Whether Flower says that a message or the answer to it was lost on its way."""
    return bool(reply.has_error() and reply.error.code in _LOST_ON_THE_WAY)


def _tidy(reason: str) -> str:
    return "".join(c if c.isprintable() else " " for c in reason[:MAX_REASON])
