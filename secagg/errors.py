"""Typed errors of the secure-aggregation core.

`LocalProtocolError` means that our own caller misused us; `RemoteProtocolError` means that a peer
sent something an honest peer would not have sent. Catch `ProtocolError` for either. A client
session that raised one is aborted for good. No error message ever contains secret bytes. All errors
survive pickling, because executors carry them between processes.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SERVER = -1
"""The party number used in errors for the server; clients are 0 .. n-1."""


class Reason(enum.Enum):
    """Why a peer's message was refused: one member for each check."""

    MALFORMED = "the bytes are not a message of this protocol version"
    OVERSIZED = "the message is longer than any honest message of this round"
    UNEXPECTED_MESSAGE = "this kind of message is not legal in the present state"
    UNKNOWN_SENDER = "the sender is not in the cohort, or not in the set that may still speak"
    DUPLICATE_MESSAGE = "the sender has already sent this message"
    WRONG_CONTEXT = "the message belongs to another session, round or parameter set"
    BAD_SIGNATURE = "the signature does not verify under the registered identity"
    BAD_KEY = "the public key is not acceptable"
    DUPLICATE_KEY = "two parties advertised the same public key"
    OWN_ENTRY_MISSING = "our own entry is missing or was changed"
    SET_TOO_SMALL = "the announced set is smaller than the threshold or the minimum survivors"
    SET_NOT_NESTED = "the announced set is not contained in the set before it"
    BAD_SEAL = "a sealed message does not open"
    BAD_SHARE = "a share is not a vector of field elements"
    NOT_IN_TREE = "our own entry is not in the roster that the server commits to"
    BAD_LENGTH = "a list or vector has another length than the round demands"
    NOT_IN_FIELD = "a vector element is not below the prime"
    WRONG_SEED = "a seed that was given up is not the one committed to"
    MISSING_SIGNATURES = "too few signatures on the announced survivor set"


class ProtocolError(Exception):
    """Abstract base of both kinds of protocol error; never raised itself."""

    def __init__(self, message: str) -> None:
        if type(self) is ProtocolError:
            raise TypeError("raise LocalProtocolError or RemoteProtocolError instead")
        super().__init__(message)


class LocalProtocolError(ProtocolError):
    """Our own caller asked for something that the protocol does not allow."""


class ParameterError(LocalProtocolError, ValueError):
    """A parameter is infeasible: names the argument, its value and what would be valid."""

    def __init__(self, argument: str, value: object, valid: str) -> None:
        super().__init__(f"{argument} = {value!r}: must be {valid}")
        self.argument = argument
        self.value = value
        self.valid = valid

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.argument, self.value, self.valid)


class SessionAbortedError(LocalProtocolError):
    """The session ended in an error or was used up; a new session is needed."""


class TooLongError(LocalProtocolError):
    """Our vector with its noise is longer than the round allows: nothing is sent."""

    def __init__(self) -> None:
        super().__init__(
            "the vector with its noise is longer than the bound of the round: nothing is sent, and "
            "this session is over; a smaller clipping norm or a larger bound makes that rarer"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()


class TooFewSurvivorsError(LocalProtocolError):
    """Too few clients are left to go on; the round releases nothing."""

    def __init__(self, stage: str, survivors: int, needed: int) -> None:
        super().__init__(
            f"stage {stage}: {survivors} clients answered, {needed} are needed "
            f"({needed - survivors} missing); the round releases nothing"
        )
        self.stage = stage
        self.survivors = survivors
        self.needed = needed

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.stage, self.survivors, self.needed)


class WrongSharesError(LocalProtocolError):
    """The shares of one client's secret are too wrong to tell who lied; the round releases nothing.

    Attributes:
        owner: whose secret it is: it dealt wrong shares, or too many of its holders lied.
        answered: m, how many of its holders answered.
        threshold: t; up to (m - t) / 2 wrong shares would have been found.
    """

    def __init__(self, owner: int, answered: int, threshold: int) -> None:
        found = (answered - threshold) // 2
        super().__init__(
            f"stage unmask: {answered} shares do not rebuild the secret that client {owner} "
            f"committed to: either it dealt wrong ones, or more than {found} of those that "
            "answered lied, and nobody can tell who; the round releases nothing"
        )
        self.owner = owner
        self.answered = answered
        self.threshold = threshold

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.owner, self.answered, self.threshold)


class WrongAnswersError(LocalProtocolError):
    """Too many answers of a committee are wrong to tell which; the round releases nothing.

    Attributes:
        answered: m, how many members answered.
        needed: t, how many right answers open; up to (m - t) / 2 wrong ones would be found.
    """

    def __init__(self, answered: int, needed: int) -> None:
        super().__init__(
            f"stage open: of {answered} answers more than {(answered - needed) // 2} are wrong "
            f"({needed} right ones are needed), and nobody can tell which; the round releases "
            "nothing"
        )
        self.answered = answered
        self.needed = needed

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.answered, self.needed)


class OpeningFailedError(LocalProtocolError):
    """A committee's answers do not open the sum; the round is lost, and releases nothing.

    Attributes:
        answered: m, how many members answered.
        needed: t, how many right answers open.
        dealers: clients whose shares are on no polynomial: leads, not proofs.
        members: members whose answers are off everybody else's: leads, not proofs.
    """

    def __init__(
        self,
        why: str,
        answered: int,
        needed: int,
        dealers: tuple[int, ...] = (),
        members: tuple[int, ...] = (),
    ) -> None:
        leads = [
            f"{name} {', '.join(map(str, found))}"
            for name, found in (("clients", dealers), ("members", members))
            if found
        ]
        super().__init__(
            f"stage open: {answered} answers, of which {needed} right ones open the sum, do not: "
            f"{why}; the round releases nothing; "
            + (f"look at {' and '.join(leads)}" if leads else "nobody can tell whose fault it is")
        )
        self.why = why
        self.answered = answered
        self.needed = needed
        self.dealers = dealers
        self.members = members

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.why, self.answered, self.needed, self.dealers, self.members)


class RemoteProtocolError(ProtocolError):
    """A peer misbehaved: `party` is its index in the cohort, or `SERVER`.

    If `role` is "member", it is an index in the committee of a one-shot round.
    """

    def __init__(self, party: int, reason: Reason, detail: str = "", role: str = "client") -> None:
        name = "server" if party == SERVER else f"{role} {party}"
        super().__init__(f"{name}: {reason.value}" + (f" ({detail})" if detail else ""))
        self.party = party
        self.reason = reason
        self.detail = detail
        self.role = role

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.party, self.reason, self.detail, self.role)


@contextmanager
def blaming(party: int, reason: Reason, role: str = "client") -> Iterator[None]:
    """Turn a `ValueError` inside, from bytes that do not decode, into the party's error."""
    try:
        yield
    except ValueError as error:
        raise RemoteProtocolError(party, reason, str(error), role) from None


class CapacityError(LocalProtocolError, ValueError):
    """The field is too small for the sum: it would wrap around."""

    def __init__(self, required_bits: int, bits: int) -> None:
        super().__init__(
            f"the sum needs a field of {required_bits} bits, but bits = {bits}; raise bits to "
            f"{required_bits}, or lower the cohort, the scale or the number of coins"
        )
        self.required_bits = required_bits
        self.bits = bits

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.required_bits, self.bits)
