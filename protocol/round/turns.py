"""A client's own coin: which round of a block it comes to, if cohorts are hidden.

A coin is drawn from the operating system when its block is first asked about, and kept: drawn
again, the client would come twice, or in a round that is no longer uniform. It hides the client
from those who see models only, so nobody but the server may hear of it. The server asks before it
announces a round (`Question`), and announces those who say yes.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import Final, Self

from dp import LedgerError
from protocol.errors import PolicyError
from secagg import SERVER, Reason, RemoteProtocolError
from secagg.checks import require_int
from secagg.keys import os_random
from secagg.shamir import Rand
from secagg.storage import sync_folder, write_durably
from secagg.terms import SESSION_ID_BYTES

_COIN_BYTES = 16  # modulo the block: uniform but for 2^-100
# As long as nothing else that an announcer signs: no context hash, no request for a sealing key.
_FORM: Final = Struct(f"<{SESSION_ID_BYTES}sQI")
YES, NO = b"\1", b"\0"
"""Answers to a question."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a client is asked before a round is announced: whether it comes.

    Attributes:
        session_id: 16 bytes.
        round_number: of the round that would be announced.
        block: t, rounds of a block, as the server has it.
    """

    session_id: bytes
    round_number: int
    block: int

    def encode(self) -> bytes:
        """The question as bytes, which `read` takes."""
        return _FORM.pack(self.session_id, self.round_number, self.block)

    @classmethod
    def read(cls, data: bytes) -> Self:
        """A server's question; `RemoteProtocolError` if it is none."""
        if len(data) != _FORM.size:
            raise RemoteProtocolError(SERVER, Reason.MALFORMED, "a question whose turn it is")
        return cls(*_FORM.unpack(data))


def drawn_turn(block: int, rand: Rand = os_random) -> int:
    """A round of a block, 0 .. block - 1."""
    return int.from_bytes(rand(_COIN_BYTES), "little") % block


class StoredTurns:
    """The coins of one client, in a folder: a file for each session and block.

    Args:
        folder: made if it does not exist; one for each identity.
        block: t, rounds of a block, as the client's own policy has it.
        rand: source of coins; leave it alone except to simulate.

    Raises:
        ParameterError: no block.
    """

    def __init__(self, folder: Path, block: int, rand: Rand = os_random) -> None:
        require_int("block", block, 2)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder, self._block, self._rand = folder, block, rand

    def comes(self, session_id: bytes, round_number: int) -> bool:
        """Whether this is the round of its block that the coin says; the coin is on disk then.

        Raises:
            LedgerError: the coin was damaged.
        """
        block, turn = divmod(round_number, self._block)
        path = self._folder / f"{session_id.hex()}-{self._block}-{block}"
        if not path.exists():
            self._keep(path, drawn_turn(self._block, self._rand))
        text = path.read_text(errors="replace")
        if not (text.isascii() and text.isdigit() and int(text) < self._block):
            raise LedgerError(f"the coin in {path} was damaged: sit this block out")
        return int(text) == turn

    def answer(self, question: Question) -> bytes:
        """Whether we come: `YES` or `NO`, the same however often it is asked.

        Raises:
            PolicyError: the server has another block than our policy.
            LedgerError: as for `comes`.
        """
        if question.block != self._block:
            raise PolicyError("block", question.block, f"{self._block} rounds, as the policy says")
        return YES if self.comes(question.session_id, question.round_number) else NO

    def require(self, session_id: bytes, round_number: int) -> None:
        """See that it is our turn, of a round that was announced to us.

        Raises:
            PolicyError: it is not.
            LedgerError: as for `comes`.
        """
        if not self.comes(session_id, round_number):
            valid = "the one round of each block that its coin says"
            raise PolicyError("turn", round_number, valid)

    def _keep(self, path: Path, coin: int) -> None:
        """Write a whole coin or none; if another process or thread was faster, its coin stays."""
        fresh = path.with_name(f"{path.name}.{os_random(8).hex()}.new")
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
        descriptor = os.open(fresh, flags, 0o600)
        try:
            write_durably(descriptor, str(coin).encode())
            os.link(fresh, path)
        except FileExistsError:
            pass
        finally:
            fresh.unlink()  # also where a disk is full, or knows no hard links
        sync_folder(self._folder)
