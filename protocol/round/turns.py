"""A client's own coin: which round of a block it comes to, if cohorts are hidden.

All coins follow from one secret of the client's, which is drawn once and kept: a coin that was
drawn again would bring the client twice, or in a round that is no longer uniform. It hides the
client from those who see models only, so nobody but the server may hear of it. The server asks
before it announces a round (`Question`), and announces those who say yes.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import Final, Self

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.hmac import HMAC

from dp import LedgerError
from protocol.errors import PolicyError
from secagg import SERVER, Reason, RemoteProtocolError
from secagg.checks import require_int
from secagg.keys import KEY_BYTES, os_random
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
    """The coins of one client, by session and block, from the secret in a folder.

    However many sessions a server makes up, nothing is added to the folder, and one that is put
    back as it was has the same coins.

    Args:
        folder: made if it does not exist; one for each identity.
        block: t, rounds of a block, as the client's own policy has it.
        rand: source of the secret; leave it alone except to simulate.

    Raises:
        ParameterError: no block.
    """

    def __init__(self, folder: Path, block: int, rand: Rand = os_random) -> None:
        require_int("block", block, 2)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path, self._block, self._rand = folder / "secret", block, rand

    def comes(self, session_id: bytes, round_number: int) -> bool:
        """Whether this is the round of its block that the coin says; the secret is on disk then.

        Raises:
            LedgerError: the secret was damaged.
        """
        block, turn = divmod(round_number, self._block)
        # A key for nothing else; all that is hashed is as long as ever.
        coins = HMAC(self._secret(), hashes.SHA256())
        coins.update(session_id + self._block.to_bytes(8, "little") + block.to_bytes(8, "little"))
        coin = coins.finalize()
        return turn == drawn_turn(self._block, lambda length: coin[:length])

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

    def _secret(self) -> bytes:
        if not self._path.exists():
            self._keep(self._rand(KEY_BYTES))
        secret = self._path.read_bytes()
        if len(secret) != KEY_BYTES:
            problem = f"{self._path} has {len(secret)} bytes, and not {KEY_BYTES}"
            raise LedgerError(f"{problem}: remove it between two sessions, and no sooner")
        return secret

    def _keep(self, secret: bytes) -> None:
        """Write it whole or not at all; if another process or thread was faster, its own stays."""
        fresh = self._path.with_name(f"{os_random(8).hex()}.new")
        descriptor = os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        try:
            write_durably(descriptor, secret)
            os.link(fresh, self._path)
        except FileExistsError:
            pass
        finally:
            fresh.unlink()  # also where a disk is full, or knows no hard links
        sync_folder(self._path.parent)
