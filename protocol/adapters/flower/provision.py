"""Makes clients' folders, as a command.

    python -m protocol.adapters.flower.provision client --home /srv/veilsum
    python -m protocol.adapters.flower.provision network --out DIR --clients 10 --epsilon 8 ...

`client` makes one identity, where it stays, and prints its public key for the operators' registry.
`network` makes all folders of a test network in one place; whoever runs it knows every key.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from protocol.adapters.flower.clear import EVALUATION, QUERIES
from protocol.adapters.flower.folders import new_client, new_network
from protocol.adapters.flower.home import REGISTRY, ClientRules
from protocol.errors import ConfigurationError
from protocol.planning.configuration import parse

_RULES = (
    *("epsilon", "delta", "rounds", "clip_l2", "minimum_survivors", "tolerated_colluders"),
    "lifetime_seconds",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; 1 and a message on standard error if something is wrong."""
    given = _parser().parse_args(arguments)
    try:
        if given.command == "client":
            print(new_client(given.home).public.hex())
        else:
            names = (*_RULES, EVALUATION, QUERIES)
            asked = {name: getattr(given, name) for name in names}
            if given.committee is not None:
                asked["committee"] = {"kind": given.committee, "corrupt": given.committee_corrupt}
            rules = parse(asked, ClientRules)
            named = given.committee_size if given.committee == "named" else 0
            new_network(given.out, given.clients, rules, named)
            print(given.out / REGISTRY)
    except (ConfigurationError, OSError) as error:
        print(f"provision: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m protocol.adapters.flower.provision")
    commands = parser.add_subparsers(dest="command", required=True)
    client = commands.add_parser("client", help="one identity, made where it stays")
    client.add_argument("--home", type=Path, required=True)
    network = commands.add_parser("network", help="all folders of a test network")
    network.add_argument("--out", type=Path, required=True)
    network.add_argument("--clients", type=int, required=True)
    network.add_argument("--epsilon", type=float, required=True)
    network.add_argument("--delta", type=float, required=True)
    network.add_argument("--rounds", type=int, required=True)
    network.add_argument("--clip-l2", type=float, required=True)
    network.add_argument("--minimum-survivors", type=int, required=True)
    network.add_argument("--tolerated-colluders", type=int, required=True)
    network.add_argument("--lifetime-seconds", type=int)
    whose = "who opens one-shot sums: everyone, or a committee of the first clients"
    network.add_argument("--committee", choices=("everyone", "named"), help=whose)
    network.add_argument("--committee-size", type=int, default=0, help="members, if named")
    network.add_argument("--committee-corrupt", type=int, help="how many may be the server's")
    for name in (EVALUATION, QUERIES):
        network.add_argument(
            "--" + name.replace("_", "-"),
            action="store_true",
            help="they leave as they are",
        )
    return parser


if __name__ == "__main__":
    sys.exit(main())
