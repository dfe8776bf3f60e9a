"""A30: old copies of what a client keeps on its disk, and what is missing from it.

A backup of a stored round is opened after the identity has leaked. And a client's history is found
with its charges deleted, cut or put back to an earlier copy, or its marks.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np

from dp import LedgerError
from protocol import PolicyError, PrivacyGoal, StoredHistory
from secagg import ClientSession, FieldVector
from secagg.field import unpack
from secagg.pairwise.client_states import Party
from secagg.pairwise.messages import MaskedInput
from secagg.storage import (
    STATE_KEY_BYTES,
    StateKeys,
    StoredStateError,
    TokenFolder,
    resume,
    suspend,
)
from simulations.audits.base import identities_of
from simulations.threats.attack import Attack, Effort, Findings, rate, refusal
from simulations.threats.game.adversary import Adversary
from simulations.threats.game.contexts import Integers, KeptKeys, identity_of
from simulations.threats.game.games import Setting, deals
from simulations.threats.game.victims import Victims
from simulations.threats.game.weak_clients import replaced
from simulations.threats.rounds.announced import COHORT, DELTA, FULL_PRICE, announced_round, price

# -- stored rounds ----------------------------------------------------------------------------


class GuessedKeys(KeptKeys):
    """The adversary's: a key for every state, in case that the identity alone decides."""

    def key(self, token: bytes) -> bytes:
        """Give the same key for every token."""
        return bytes(STATE_KEY_BYTES)


class RestartedVictims(Victims):
    """Clients that are stored before they mask their input, and restarted from what was stored."""

    def store_in(self, keys: TokenFolder) -> None:
        """Where they keep the keys of what they store."""
        self._keys = keys
        self.copies: dict[int, bytes] = {}

    def upload(self, u: int) -> MaskedInput | None:
        """The upload of the restarted client."""
        stored = self.copies[u] = suspend(self._sessions[u], self._keys)
        party = Party(self.context, u, identity_of(u))
        self._sessions[u] = resume(ClientSession, stored, party, self._keys)
        return super().upload(u)


def _opened_by_backup(
    victims: RestartedVictims, upload: MaskedInput, u: int, left: Path
) -> Integers | None:
    """What client u put in, by its backup, its identity, and the keys that are left on its disk."""
    context = victims.context
    party = Party(context, u, identity_of(u))
    seized: tuple[StateKeys, ...] = (TokenFolder(left), GuessedKeys())
    for keys in seized:
        try:
            session = resume(ClientSession, victims.copies[u], party, keys)
        except StoredStateError:
            continue
        nothing = FieldVector(context.field, np.zeros(context.length, context.field.dtype))
        masks = session.submit(nothing)
        if isinstance(masks, MaskedInput):
            sent, mask = (
                unpack(message.vector, context.length, context.field).elements.astype(object)
                for message in (upload, masks)
            )
            return np.array((sent - mask) % context.field.modulus, context.field.dtype)
    return None


def _uploads_opened(rounds: int, seed: int) -> tuple[int, int]:
    """Recorded uploads that were opened after all, and those that were tried."""
    opened = tried = 0
    for rng, context, inputs in deals(Setting(), rounds, seed):
        victims = RestartedVictims(context, inputs, [], rng.bytes(8))
        with tempfile.TemporaryDirectory() as folder:
            victims.store_in(TokenFolder(Path(folder)))
            server = Adversary(victims, rng)
            server.run()
            for u, upload in server.uploads.items():
                found = _opened_by_backup(victims, upload, u, Path(folder))
                opened += found is not None and np.array_equal(found, inputs[u])
                tried += 1
    return opened, tried


# -- histories --------------------------------------------------------------------------------


def _cut(folder: Path, before: Path) -> None:
    lines = (folder / "charges.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "charges.jsonl").write_bytes(b"".join(lines[:-1]))


def _delete_charges(folder: Path, before: Path) -> None:
    (folder / "charges.jsonl").unlink()


def _old_charges(folder: Path, before: Path) -> None:
    shutil.copy(before / "charges.jsonl", folder / "charges.jsonl")


def _delete_marks(folder: Path, before: Path) -> None:
    shutil.rmtree(folder / "answered")


def _old_marks(folder: Path, before: Path) -> None:
    shutil.rmtree(folder / "answered")
    shutil.copytree(before / "answered", folder / "answered")


CHANGES: Final[dict[str, Callable[[Path, Path], None]]] = {
    "charges cut": _cut,
    "charges deleted": _delete_charges,
    "charges rolled back": _old_charges,
    "marks deleted": _delete_marks,
    "marks rolled back": _old_marks,
}


def _overrun(change: Callable[[Path, Path], None], seed: int) -> str:
    """What becomes of a third round under a goal for two, and of the second one once more."""
    identities = identities_of(seed, COHORT)
    first, second, third = (
        announced_round(identities, bytes(32), FULL_PRICE, seed, number) for number in range(3)
    )
    told = []
    # Without a goal, only marks keep a round from being answered again.
    for goal, again in ((PrivacyGoal(price(first, 2), DELTA, 2), third), (None, second)):
        with tempfile.TemporaryDirectory() as name:
            folder, before = Path(name) / "history", Path(name) / "before"
            StoredHistory(folder, goal).close()
            shutil.copytree(folder, before)
            with StoredHistory(folder, goal) as history:
                for setup in (first, second):
                    history.answer(setup)
                    history.charge(setup)
            change(folder, before)
            try:
                with StoredHistory(folder, goal) as history:
                    history.answer(again)
                    history.charge(again)
                    return ""
            except (LedgerError, PolicyError) as error:
                told.append(refusal(error))
    return ", ".join(dict.fromkeys(told))


def old_copies(effort: Effort, seed: int) -> Findings:
    """A30: open backups of stored rounds, and put histories back to earlier copies."""
    rounds = effort.choose(4, 40)
    opened, tried = _uploads_opened(rounds, seed)
    answers = {name: _overrun(change, seed) for name, change in CHANGES.items()}
    # Keys that are used are not destroyed; marks and charges are taken as they are.
    kept, unheld = (TokenFolder, "consume"), (StoredHistory, "_check_marks")
    with replaced((*kept, lambda *_: True), (*unheld, lambda _: None)):
        weak_opened, weak_tried = _uploads_opened(rounds, seed)
        weak = {name: _overrun(change, seed) for name, change in CHANGES.items()}
    overruns = sum(not told for told in answers.values())
    return Findings(
        {
            **rate(opened + overruns, tried + len(CHANGES)),
            "uploads_opened": opened,
            "uploads_recorded": tried,
            "refused_with": "; ".join(f"{name}: {told}" for name, told in answers.items()),
            "histories_let_through": overruns,
        },
        {
            "succeeded": weak_opened == weak_tried and not any(weak.values()),
            "uploads_opened": weak_opened,
            "uploads_recorded": weak_tried,
            "histories_let_through": sum(not told for told in weak.values()),
        },
    )


ATTACKS: Final = (
    Attack(
        id="A30",
        promise="P1",
        name="old copies of a client's files",
        title="Old copies of a client's files open no upload and undo no count",
        says="opens a recorded upload with a backup of the stored round and a leaked identity; "
        "deletes, truncates or rolls back charges or marks",
        stopped_by="a key for each stored state, destroyed on resumption; marks and charges that "
        "are compared",
        see=("security.md#stored-sessions",),
        run=old_copies,
    ),
)
