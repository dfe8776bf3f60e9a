"""What other ranks need of a run's folder: a copy of its state, in a folder that is thrown away.

Rank 0 alone keeps the folder. The others begin where it begins, with the same secrets and the same
ledger, and decide as it does. Their copies are removed as soon as they are open.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from protocol.exchange.ranks import Ranks
from simulations.common.ranks import PIECE_BYTES
from simulations.learning.configuration import RunConfig
from simulations.learning.run.folder import RunFolder


def share_state(ranks: Ranks, folder: RunFolder) -> None:
    """Send the state of a folder to all other ranks, which call `scratch_folder`."""
    if ranks.size == 1:
        return
    for path in folder.state():
        ranks.broadcast(path.name)
        with path.open("rb") as file:
            while piece := file.read(PIECE_BYTES):
                ranks.broadcast(piece)
        ranks.broadcast(b"")
    ranks.broadcast("")


@contextmanager
def scratch_folder(ranks: Ranks, config: RunConfig) -> Iterator[RunFolder]:
    """A folder with the state that rank 0 shares; removed at the end."""
    with TemporaryDirectory(prefix="veilsum-rank-") as parent:
        with RunFolder(Path(parent) / "run", config) as folder:
            while name := ranks.broadcast(""):
                with (folder.path / name).open("xb") as file:
                    # Among it are the secrets of the run.
                    (folder.path / name).chmod(0o600)
                    while piece := ranks.broadcast(b""):
                        file.write(piece)
            yield folder
