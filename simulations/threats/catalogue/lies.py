"""A17 and A18: clients that lie about shares, and a wire that damages what it carries."""

from __future__ import annotations

from collections import Counter
from functools import partial
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np

from secagg import ServerSession
from secagg.pairwise.messages import (
    Advertisement,
    Confirmation,
    MaskedInput,
    SeedShares,
    ShareBundle,
    UnmaskShares,
)
from simulations.audits.base import Figures
from simulations.threats.attack import Attack, rate, refused_with, twins
from simulations.threats.faults.behaviours import Tally, no_hang
from simulations.threats.faults.lies import LIES
from simulations.threats.faults.rounds import play_liar, play_wire

_LIES = (
    "shares another self-mask seed",
    "shares another masking key",
    "deals wrong shares to some",
    "masks with another seed than it shares",
    "answers with wrong shares",
    "answers with too few shares",
    "answers with doubled shares",
    "answers with shares of the other kind",
    "answers with shares of other owners",
)
"""The lies of clients that are about shares of masks, by their names in the fault campaign."""


_KINDS = {
    kind.__struct_config__.tag: kind
    for kind in (Advertisement, ShareBundle, MaskedInput, Confirmation, UnmaskShares, SeedShares)
}
"""Messages to the server by their number on the wire."""


def _receive_carelessly(server: ServerSession, sender: int, data: bytes) -> None:
    """Read what a message should have, and look at neither lengths, types nor the sender."""
    number, *values = msgspec.msgpack.decode(data[1:])
    kind = _KINDS[number]
    message: Any = SimpleNamespace(**dict(zip(kind.__struct_fields__, values, strict=False)))
    server.RECEIVERS[server._phase, kind](server, message)


def _lying(trials: int, seed: int) -> Figures:
    """Rounds with liars that end in a wrong sum."""
    wrong = 0
    ends: Counter[str] = Counter()
    for number in range(trials):
        lie = LIES[_LIES[number % len(_LIES)]]
        rng = np.random.default_rng([seed, number])
        verdict = play_liar(lie, rng, number, 0.0, Tally())
        ends[verdict.outcome] += 1
        wrong += (verdict.problem or "").startswith("wrong sum")
    return {**rate(wrong, trials), "exact_sums": ends["exact sum"]}


def _damaged(trials: int, seed: int) -> Figures:
    """Rounds on a hostile wire that end in a wrong sum, or in anything but a typed error."""
    broken, faults = 0, 0
    refusals: Counter[str] = Counter()
    for number in range(trials):
        tally = Tally()
        rng = np.random.default_rng([seed, number])
        play = partial(play_wire, rng, number, 0.1, tally)
        try:
            with no_hang():
                broken += play().problem is not None
        except Exception:  # whatever else comes out is what this attack is after
            broken += 1
        refusals.update(tally.refusals)
        faults += tally.faults.total()
    return {**rate(broken, trials), **refused_with(refusals), "faults": faults}


ATTACKS = (
    Attack(
        id="A17",
        promise="P7",
        name="tampered shares",
        title="Wrong shares never make a wrong sum",
        says="has clients send wrong, foreign or duplicated shares",
        stopped_by="commitments, key checks, surplus shares",
        run=twins(
            _lying,
            5 * len(_LIES),
            100 * len(_LIES),
            # No rebuilt secret is compared with what its owner committed to.
            (ServerSession, "_is_committed", lambda *_: True),
        ),
    ),
    Attack(
        id="A18",
        promise="P7",
        name="malformed messages",
        title="Damaged, doubled, late and reordered messages end in the exact sum or a typed error",
        says="damages, truncates, duplicates, delays or reorders them",
        stopped_by="a strict decoder with bounds, states that refuse unexpected messages",
        run=twins(_damaged, 30, 1000, (ServerSession, "receive_bytes", _receive_carelessly)),
    ),
)
