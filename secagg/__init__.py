"""Exact sums in GF(p) from an untrusted server; knows nothing of privacy budgets or learning."""

from secagg.client import ClientSession
from secagg.context import Mode, SessionContext, lowest_threshold
from secagg.errors import (
    SERVER,
    CapacityError,
    LocalProtocolError,
    OpeningFailedError,
    ParameterError,
    ProtocolError,
    Reason,
    RemoteProtocolError,
    SessionAbortedError,
    TooFewSurvivorsError,
    WrongSharesError,
)
from secagg.field import FieldVector, PrimeField, centre, lift
from secagg.keys import Identity
from secagg.server import FieldSum, ServerSession

__part_of__ = "veilsum"

__all__ = [
    "SERVER",
    "CapacityError",
    "ClientSession",
    "FieldSum",
    "FieldVector",
    "Identity",
    "LocalProtocolError",
    "Mode",
    "OpeningFailedError",
    "ParameterError",
    "PrimeField",
    "ProtocolError",
    "Reason",
    "RemoteProtocolError",
    "ServerSession",
    "SessionAbortedError",
    "SessionContext",
    "TooFewSurvivorsError",
    "WrongSharesError",
    "centre",
    "lift",
    "lowest_threshold",
]
