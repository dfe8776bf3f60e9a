"""Exact sums in GF(p) from an untrusted server; knows nothing of privacy budgets or learning."""

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
from secagg.pairwise.client import ClientSession
from secagg.pairwise.context import Mode, SessionContext, lowest_threshold
from secagg.pairwise.server import ServerSession
from secagg.server import FieldSum

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
