"""The promises in words, and which checks try each of them; docs/threat-model.md has the same list.

What is not promised is here too, in short: the page has to say it, and an installed package has no
documentation beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from simulations.audits.base import Check
from simulations.threats.attack import Attack


@dataclass(frozen=True, slots=True)
class Promise:
    """A promise in words, and the checks that try to break it."""

    name: str  # "P1" and on
    title: str  # in a few words
    text: str  # in full
    prefixes: tuple[str, ...] = ()  # with which the ids of its other checks begin

    @property
    def attacks(self) -> tuple[str, ...]:
        """Ids of the catalogue that try to break it."""
        return tuple(id for id, attack in records().items() if attack.promise == self.name)

    def covers(self, check: Check) -> bool:
        """Whether a check is about this promise."""
        return check.id in self.attacks or check.id.startswith(self.prefixes)


PROMISES: Final = (
    Promise(
        "P1",
        "One sum, and no part of it",
        "From one round a server with up to the tolerated number of colluding clients learns one "
        "sum over at least minimum_survivors minus those colluders, and no other combination of "
        "honest inputs, whatever it tells whom and in whatever order.",
        ("span ",),
    ),
    Promise(
        "P2",
        "No impersonation, and nothing counts twice",
        "Every message is signed for one session, round, context and roster by a registered key. "
        "Substituted keys, keys in two encodings and messages of other rounds are refused.",
    ),
    Promise(
        "P3",
        "All clients of a sum hold the same model and parameters",
        "A client that was told a different model, order of arrays, clip, scale, sketch or "
        "threshold than the others does not stand out in the sum: its masks cancel with nobody's, "
        "and the round yields no sum. What no client should accept, its own policy refuses.",
    ),
    Promise(
        "P4",
        "The stated noise is in the sum",
        "Released sums carry exactly the noise that the accountant counts, after dropouts, after "
        "the removal of surplus noise, and after colluders remove their own.",
        ("privacy-noise-",),
    ),
    Promise(
        "P5",
        "Nobody can predict masks or noise",
        "Masks are uniform field elements, noise has the stated distribution, and both follow "
        "from 256 bits that the operating system drew.",
    ),
    Promise(
        "P6",
        "The printed epsilon bounds what is learned about one client",
        "No attack on released sums, on differences of them, or on models made from them "
        "distinguishes a client's contribution from zero better than the accounted epsilon allows.",
        ("privacy-exact-", "privacy-sensitivity", "privacy-two-worlds", "privacy-one-run"),
    ),
    Promise(
        "P7",
        "The exact sum or a typed error",
        "Wrong shares, malformed messages and values too large for the field end in a typed error "
        "or in the loss of the client that sent them, never in a wrong sum.",
    ),
    Promise(
        "P8",
        "What is sent, and when, does not depend on an input that is finite",
        "Whether and in what order a client sends, aborts or fails is the same for every input "
        "that it accepts.",
    ),
    Promise(
        "P9",
        "Stated, not prevented",
        "Cryptography cannot tell a Sybil cohort from one of people, and a sum of updates "
        "reveals something about the data. A client's policy limits the first; aggregation "
        "and noise limit the second. What remains is shown here.",
    ),
    Promise(
        "P10",
        "Known mistakes of other secure aggregation are not repeated",
        "Weaknesses found in Flower's secure aggregation, each tried on it and on this protocol.",
        ("F",),
    ),
    Promise(
        "P11",
        "One sum in a one-shot round",
        "From one round with one cohort a server with the tolerated clients and committee members "
        "learns one sum over at least minimum_survivors minus those clients, and no other "
        "combination of honest inputs, whatever it tells whom.",
        ("one-shot ",),
    ),
    Promise(
        "P12",
        "A one-shot sum is exact, or a typed error",
        "Copied uploads, shares on no polynomial, wrong answers and packed digits never make a "
        "wrong sum, and no upload counts twice.",
    ),
    Promise(
        "P13",
        "Returned noise is taken back once, and counted",
        "Over a run with returned noise, the sums that a server opens carry the noise that their "
        "records say, whatever it repeats, omits or tells whom; and every client counts the whole "
        "run, including all noise that may still be taken back.",
        ("returned ",),
    ),
    Promise(
        "P14",
        "Members do, keep and skip only what they agreed to",
        "A member of a committee draws no more noise than its own policy allows, erases its keys "
        "in time, and is in one round at a time, whatever a server asks for or does not. Made-up "
        "records and bad entries of other members shut nobody out.",
    ),
    Promise(
        "P15",
        "A client sends no more than its share of a validated sum",
        "With a server that follows the protocol and at most c corrupt members, no vector beyond "
        "the bound is in a validated sum; and no server can choose a bound at which silence tells.",
    ),
)

OTHERS: Final = Promise("P0", "Further checks", "Checks that belong to none of the promises above.")


@cache
def records() -> Mapping[str, Attack]:
    """The attacks of the catalogue by id; it takes a second to load, so it waits for a caller."""
    from simulations.threats.catalogue import CATALOGUE

    return {attack.id: attack for attack in CATALOGUE}


NOT_PROMISED: Final = (
    (
        "Sybil majorities",
        "If most of a cohort belongs to the server, only a client's own noise protects it.",
    ),
    (
        "One bad model for everybody",
        "Clients can tell that they all hold the same model, not that it is an honest one.",
    ),
    (
        "Valid inputs",
        "A malicious client may spoil the sum. It does not learn more from the sum by doing so.",
    ),
    (
        "A right result from a malicious server",
        "What opens is the noisy sum; what the server then publishes is only its word.",
    ),
    (
        "Guaranteed output",
        "A round ends without a sum if too many clients leave or shares are wrong.",
    ),
    (
        "Side channels of the platform",
        "Python and NumPy are not constant-time, and memory is not wiped.",
    ),
    (
        "Hidden participation",
        "Epsilon is for a contribution replaced by zero. That a client took part is visible.",
    ),
    (
        "Lost memory",
        "A client that loses its history counts from zero, and may be asked for the same round "
        "again.",
    ),
    (
        "A policy that the server wrote",
        "A client that lets the server choose its policy is not protected by it.",
    ),
    (
        "A proof",
        "The attacks that failed here are only those that were tried. An audit can refute, but "
        "never prove; only the schedules of small rounds are enumerated completely.",
    ),
)
"""What an audit does not show and the system does not promise."""


def by_promise(checks: Sequence[Check]) -> list[tuple[Promise, list[Check]]]:
    """Return the checks of each promise; promises without any are left out."""
    found = [(promise, [c for c in checks if promise.covers(c)]) for promise in PROMISES]
    rest = [c for c in checks if not any(promise.covers(c) for promise in PROMISES)]
    return [(promise, group) for promise, group in [*found, (OTHERS, rest)] if group]
