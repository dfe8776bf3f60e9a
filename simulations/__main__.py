"""Entry point of the `veilsum` command: the one place where errors become words."""

from __future__ import annotations

import sys

from simulations.common.failures import one_line


def main() -> None:
    """Run the command line.

    What is no mistake in the program is one line on standard error and exit status 2.
    """
    try:
        # Inside, as what it imports may be missing.
        from simulations.commands import cli

        cli.app()
    except Exception as error:
        line = one_line(error)
        if line is None:
            raise
        print(line, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
