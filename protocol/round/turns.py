"""A client's own coin: which round of a block it comes to, if cohorts are hidden.

A coin is drawn from the operating system when its block is first asked about, and kept: drawn
again, the client would come twice, or in a round that is no longer uniform. It hides the client
from those who see models only, so nobody but the server may hear of it.
"""

from __future__ import annotations

import os
from pathlib import Path

from dp import LedgerError
from secagg.checks import require_int
from secagg.keys import os_random
from secagg.shamir import Rand
from secagg.storage import sync_folder, write_durably

_COIN_BYTES = 16  # modulo the block: uniform but for 2^-100


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

    def _keep(self, path: Path, coin: int) -> None:
        """Write a whole coin or none; if another process or thread was faster, its coin stays."""
        fresh = path.with_name(f"{path.name}.{os_random(8).hex()}.new")
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
        write_durably(os.open(fresh, flags, 0o600), str(coin).encode())
        try:
            os.link(fresh, path)
        except FileExistsError:
            pass
        fresh.unlink()
        sync_folder(self._folder)
