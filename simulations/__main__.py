"""Entry point of the `veilsum` command; says what to install when the `sim` extra is missing."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line."""
    try:
        from simulations import cli
    except ModuleNotFoundError as error:
        sys.exit(
            f"the veilsum command needs {error.name}, which comes with its extra: "
            'pip install "veilsum[sim]"'
        )
    cli.main()


if __name__ == "__main__":
    main()
