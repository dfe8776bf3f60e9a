"""The promises in words, and which checks try each of them; docs/threat-model.md has the same list.

What is not promised is here too, in short: the page has to say it, and an installed package has no
documentation beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from simulations.audits.base import Check


@dataclass(frozen=True, slots=True)
class Promise:
    """A promise in words, and the checks that try to break it."""

    name: str  # "P1" and on
    title: str  # in a few words
    text: str  # in full
    attacks: tuple[str, ...]  # ids of the catalogue that try to break it
    prefixes: tuple[str, ...] = ()  # with which the ids of its other checks begin

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
        ("A1", "A2", "A3", "A4", "A8", "A9", "A13", "A29", "A30", "A72"),
        ("span ",),
    ),
    Promise(
        "P2",
        "Nobody speaks for another, and nothing counts twice",
        "Every message is signed for one session, round, context and roster by a registered key. "
        "Substituted keys, keys in two encodings and messages of other rounds are refused.",
        ("A5", "A7", "A32"),
    ),
    Promise(
        "P3",
        "All clients of a sum hold the same model and parameters",
        "A client that was told a different model, order of arrays, clip, scale, sketch or "
        "threshold than the others does not stand out in the sum: its masks cancel with nobody's, "
        "and the round yields no sum. What no client should accept, its own policy refuses.",
        ("A11", "A12", "A27"),
    ),
    Promise(
        "P4",
        "The stated noise is in the sum",
        "Released sums carry exactly the noise that the accountant counts, after dropouts, after "
        "the removal of surplus noise, and after colluders remove their own.",
        ("A14", "A15", "A16"),
        ("privacy-noise-",),
    ),
    Promise(
        "P5",
        "Nobody can predict masks or noise",
        "Masks are uniform field elements, noise has the stated distribution, and both follow "
        "from 256 bits that the operating system drew.",
        ("A20", "A21"),
    ),
    Promise(
        "P6",
        "The printed epsilon bounds what is learned about one client",
        "No attack on released sums, on differences of them, or on models made from them "
        "distinguishes a client's contribution from zero better than the accounted epsilon allows.",
        ("A10", "A22", "A24", "A26", "A28", "A65", "A66", "A73"),
        ("privacy-exact-", "privacy-sensitivity", "privacy-two-worlds", "privacy-one-run"),
    ),
    Promise(
        "P7",
        "The exact sum or a typed error",
        "Wrong shares, malformed messages and values too large for the field end in a typed error "
        "or in the loss of the client that sent them, never in a wrong sum.",
        ("A17", "A18", "A19", "A31"),
    ),
    Promise(
        "P8",
        "What is sent, and when, does not depend on an input that is finite",
        "Whether and in what order a client sends, aborts or fails is the same for every input "
        "that it accepts.",
        ("A25",),
    ),
    Promise(
        "P9",
        "Stated rather than prevented",
        "Cryptography cannot tell a cohort of pretenders from one of people, and a sum of updates "
        "says something about the data behind it. A client's policy limits the first; aggregation "
        "and noise limit the second. What remains is shown here.",
        ("A6", "A23"),
    ),
    Promise(
        "P10",
        "What other secure aggregation gets wrong is not repeated",
        "Weaknesses found in Flower's secure aggregation, each tried on it and on this protocol.",
        (),
        ("F",),
    ),
    Promise(
        "P11",
        "One sum in a one-shot round",
        "From one round with one cohort a server with the tolerated clients and committee members "
        "learns one sum over at least minimum_survivors minus those clients, and no other "
        "combination of honest inputs, whatever it tells whom.",
        (
            *("A33", "A34", "A35", "A36", "A37", "A38", "A39", "A40", "A45", "A47", "A48", "A49"),
            *("A50", "A51", "A52", "A53", "A54"),
        ),
        ("one-shot ",),
    ),
    Promise(
        "P12",
        "A one-shot sum is exact, or a typed error",
        "Copied uploads, shares on no polynomial, wrong answers and packed digits never make a "
        "wrong sum, and no upload counts twice.",
        ("A41", "A42", "A43", "A44", "A46"),
    ),
    Promise(
        "P13",
        "Noise that members take back comes back once, and is counted",
        "Over a run whose noise comes back, the sums that a server opens carry the noise that "
        "their records say, whatever it tries again, leaves out or says to whom; and every client "
        "counts the whole run, with all that may still come back.",
        ("A55", "A56", "A57", "A58", "A59", "A60", "A61", "A62", "A63", "A64"),
        ("returned ",),
    ),
    Promise(
        "P14",
        "Nobody makes members do, keep or miss what they did not agree to",
        "A member of a committee draws no more noise than its own policy allows, erases its keys "
        "in time, and is in one round at a time, whatever a server asks for or does not. Made-up "
        "records and bad entries of other members shut nobody out.",
        ("A67", "A68", "A69", "A70", "A71"),
    ),
)

OTHERS: Final = Promise(
    "P0", "Further checks", "Checks that belong to none of the promises above.", ()
)

ATTACKS: Final = {
    "A1": "curious server and colluders",
    "A2": "both shares from one client",
    "A3": "split view of who is alive",
    "A4": "upload after being declared lost",
    "A5": "substituted keys",
    "A6": "cohort of pretenders",
    "A7": "replayed messages",
    "A8": "second survivor set",
    "A9": "masks used in two rounds",
    "A10": "differences of sums",
    "A11": "different models",
    "A12": "different parameters",
    "A13": "tiny survivor set",
    "A14": "invented dropouts",
    "A15": "missing noise",
    "A16": "colluders' own noise removed",
    "A17": "tampered shares",
    "A18": "malformed messages",
    "A19": "sum too large for the field",
    "A20": "weak mask generator",
    "A21": "predictable noise",
    "A22": "coordinate of one client",
    "A23": "gradient inversion",
    "A24": "membership inference",
    "A25": "aborts that depend on inputs",
    "A26": "a goal without its count",
    "A27": "arrays in another order",
    "A28": "two rounds at once",
    "A29": "ring ground offline",
    "A30": "old copies of a client's files",
    "A31": "lying holders",
    "A32": "key encodings",
    "A33": "another context for one client",
    "A34": "two sets for two halves",
    "A35": "three groups of members",
    "A36": "a member asked twice, or set back",
    "A37": "strangers and duplicates in a set",
    "A38": "a set that is too small",
    "A39": "a client that uploads twice",
    "A40": "one key for two vectors",
    "A41": "seals under another name",
    "A42": "copied ciphertext",
    "A43": "dealer off its polynomials",
    "A44": "wrong answers",
    "A45": "ring beyond the table",
    "A46": "even base of digits",
    "A47": "sealing keys of another epoch",
    "A48": "a committee of the server's own",
    "A49": "two contexts of one round",
    "A50": "a stranger on a drawn committee",
    "A51": "a draw from another registry",
    "A52": "raised odds",
    "A53": "candidates of other rounds",
    "A54": "a session ground for its draw",
    "A55": "noise taken back twice, in attempts at a round",
    "A56": "lists that leave out what was signed",
    "A57": "noise made under other terms",
    "A58": "flags of members that added nothing",
    "A59": "fewer parties than agreed in a run",
    "A60": "members that look at their noise",
    "A61": "a goal spent in two runs",
    "A62": "a count of a client's own rounds only",
    "A63": "rounds nearer than planned",
    "A64": "other terms, and noise too fine",
    "A65": "an upload before its charge",
    "A66": "one reserve for rings and draws",
    "A67": "noise without a limit",
    "A68": "keys that live on",
    "A69": "made-up records",
    "A70": "a candidate that spoils its draw",
    "A71": "two announcements at once",
    "A72": "tracebacks with locals",
    "A73": "twelve calls averaged",
}
"""What an attack of the catalogue does, in a few words."""

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
