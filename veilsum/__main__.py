"""The command `veilsum`, also as `python -m veilsum`: the one place where errors become words."""

from __future__ import annotations

import logging
import os
import sys

from simulations.common.failures import one_line

_log = logging.getLogger("veilsum")


def main() -> None:
    """Run the command line.

    An error that is not a mistake in the program is reported as one line on standard error, with
    exit status 2.
    """
    try:
        # Imported here, because something that it needs may be missing.
        from simulations.commands import cli

        cli.app()
    except Exception as error:
        line = one_line(error)
        if line is None:
            raise
        _log.debug("the error in full", exc_info=error)
        rank = os.environ.get("RANK", "0")
        if rank == "0":
            print(line, file=sys.stderr)
        elif not line.startswith("RankError"):
            # Who else lost a rank says the same as rank 0.
            print(f"rank {rank}: {line}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
