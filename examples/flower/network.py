"""A real Flower network on this machine: a SuperLink, SuperNodes, and the digits app over HTTP.

Needs: veilsum[flower], scikit-learn

    python network.py --out /tmp/digits --clients 5

Every SuperNode is a process with its own folder (`veilsum.home`), made beforehand by
`veilsum provision network`. With --sites the nodes run nothing: a `veilsum site` beside each of
them answers, and runs the app for training alone. Nothing here is secured against other machines:
use TLS and node authentication for that (docs/integrations/flower.md).

All processes are stopped when the run is over; logs and the result stay in the folder.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from flwr.cli.build import build_fab_from_disk

APP = Path(__file__).parent
BIN = Path(sys.executable).parent
_START_SECONDS = 60.0
_STOP_SECONDS = 20.0

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}


class Processes:
    """Programs that we started, each with a group, a folder and a log of its own."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, command: Sequence[str]) -> None:
        """Start a program; what it says goes to `NAME.log`."""
        with (self._out / f"{name}.log").open("wb") as log:
            self._running[name] = subprocess.Popen(  # noqa: S603
                command,
                env=environment(self._out / f"{name}.flwr"),
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def send(self, name: str, what: signal.Signals) -> None:
        """Send a signal to a program and what it started."""
        os.killpg(self._running[name].pid, what)

    def stop(self, name: str) -> None:
        """End a program and what it started, by their own group."""
        process = self._running.pop(name)
        for what in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(process.pid, what)
                process.wait(_STOP_SECONDS)
            except ProcessLookupError:
                break
            except subprocess.TimeoutExpired:
                continue
        process.wait(_STOP_SECONDS)

    def stop_all(self) -> None:
        """End everything, the last first."""
        for name in reversed(list(self._running)):
            self.stop(name)

    def ended(self) -> list[str]:
        """Programs that are no longer there."""
        return [name for name, process in self._running.items() if process.poll() is not None]


class Network:
    """A SuperLink and its SuperNodes; a context manager.

    Args:
        out: an empty or new folder.
        clients: how many SuperNodes, or simulated nodes.
        privacy: options of `veilsum provision network`, by name.
        simulation: nodes are simulated by the SuperLink, in Ray.
        committee: for one-shot rounds of deployed clients, `everyone`, or how many of them, the
            first ones, are a named committee.
        odds: of each client to be on a committee of so many that is drawn; None to draw none.
        apart: rounds from one of a client's to its next, if members add noise that comes back.
        site: what `site.toml` of each client says, if a process of the site's answers for it.
        app: folder of the Flower app.
        signed: rounds and registry are signed.
    """

    def __init__(
        self,
        out: Path,
        clients: int,
        privacy: Mapping[str, float] | None = None,
        simulation: bool = False,
        committee: str | int | None = None,
        site: Mapping[str, Any] | None = None,
        app: Path = APP,
        signed: bool = False,
        odds: float | None = None,
        apart: int | None = None,
    ) -> None:
        out.mkdir(parents=True, exist_ok=True)
        self.out = out
        self.clients = clients
        self._privacy = privacy or {}
        self._simulation = simulation
        self.committee = committee
        self._site, self.app, self.signed = site, app, signed
        self.odds, self.apart = odds, apart
        self._ports: dict[int, int] = {}
        self._port = free_port()
        self.processes = Processes(out)

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.processes.stop_all()
            raise
        return self

    def __exit__(self, *details: object) -> None:
        self.processes.stop_all()

    def _start(self) -> None:
        link = [program("flower-superlink"), "--insecure", "--host", "127.0.0.1"]
        link += ["--port", str(self._port)]
        self.processes.start("superlink", link + ["--simulation"] * self._simulation)
        wait_for(self._port)
        if not self._simulation:
            self._provision()
            for number in range(self.clients):
                self.start_node(number)

    def _provision(self) -> None:
        command = [program("veilsum"), "provision", "network"]
        command += ["--out", str(self.out), "--clients", str(self.clients)]
        for name, value in self._privacy.items():
            command += [f"--{name}", str(value)]
        command += ["--signed"] * self.signed
        if self.committee == "everyone":
            command += ["--committee", "everyone"]
        elif self.committee:
            kind = "named" if self.odds is None else "drawn"
            command += ["--committee", kind, "--committee-size", str(self.committee)]
            command += ["--committee-corrupt", "0"]
        options = {"committee-odds": self.odds, "returned-apart": self.apart}
        command += [f"--{name}={value}" for name, value in options.items() if value is not None]
        subprocess.run(  # noqa: S603
            command, check=True, env=environment(self.out), stdout=subprocess.DEVNULL
        )

    def start_node(self, number: int) -> None:
        """Start the SuperNode of a client, and its site's process if it has one."""
        home, port = self.home(number), free_port()
        config = f'partition-id={number} num-partitions={self.clients} veilsum.home="{home}"'
        command = [program("flower-supernode"), "--insecure", "--host", "127.0.0.1"]
        command += ["--superlink", f"127.0.0.1:{self._port}", "--port", str(port)]
        command += ["--node-config", config]
        if self._site is None:
            self.processes.start(f"supernode-{number}", command)
            return
        secret = home / "node.secret"
        secret.write_bytes(os.urandom(32))
        secret.chmod(0o600)
        rules = [f"{key} = {json.dumps(value)}\n" for key, value in self._site.items()]
        (home / "site.toml").write_text("".join(rules))
        command += ["--isolation", "process", "--superexec-auth-secret-file", str(secret)]
        self.processes.start(f"supernode-{number}", command)
        wait_for(port)
        self._ports[number] = port
        self.start_site(number)

    def start_site(self, number: int) -> None:
        """Start the site's process of a client whose SuperNode is there."""
        home = self.home(number)
        command = [program("veilsum"), "site", "run", "--home", str(home)]
        command += ["--node", f"127.0.0.1:{self._ports[number]}"]
        command += ["--secret", str(home / "node.secret"), "--same-user"]
        self.processes.start(f"site-{number}", command)

    def home(self, number: int) -> Path:
        """The folder of a client."""
        return self.out / f"client-{number:03d}"

    def run(self, settings: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Run the app to its end; the report that its server wrote.

        Args:
            settings: overrides of the app's configuration, by dotted key.
            seconds: longest time.
        """
        home = self.out / "flwr"
        home.mkdir(exist_ok=True)
        (home / "config.toml").write_text(
            '[superlink]\ndefault = "here"\n\n[superlink.here]\n'
            f'address = "127.0.0.1:{self._port}"\ninsecure = true\n'
        )
        result = self.out / "result.json"
        overrides = {"result": str(result), **settings}
        command = [program("flwr"), "run", str(self.app), "here", "--stream"]
        command += ["--run-config", " ".join(f"{k}={toml(v)}" for k, v in overrides.items())]
        if self._simulation:
            command += ["--federation-config", f"num-supernodes={self.clients}"]
        done = subprocess.run(  # noqa: S603
            command, env=environment(home), timeout=seconds, capture_output=True, text=True
        )
        (self.out / "run.log").write_text(done.stdout + done.stderr)
        if not result.exists():
            raise RuntimeError(f"the run came to no end: see the logs in {self.out}")
        report: dict[str, Any] = json.loads(result.read_text())
        return report


def deployment_settings(
    network: Network, cohort: int, dropouts: int, **more: Any
) -> dict[str, Any]:
    """Settings of a run on a deployed network."""
    if isinstance(network.committee, int):
        # One honest member may be away, and none works for the server.
        more |= {
            "veilsum.scheme.committee.kind": "named" if network.odds is None else "drawn",
            "veilsum.scheme.committee.size": network.committee,
            "veilsum.scheme.committee.corrupt": 0,
            "veilsum.scheme.committee.away": 1,
        }
        if network.odds is None:
            more["veilsum.committee"] = str(network.out / "committee.txt")
        else:
            more["veilsum.scheme.committee.odds"] = network.odds
    if network.apart is not None:
        more |= {"veilsum.noise.kind": "returned", "veilsum.noise.apart": network.apart}
    if network.signed:
        signed = {"veilsum.registry": str(network.out / "registry.json")}
        signed["veilsum.announcer"] = str(network.out / "announcer.key")
        if "veilsum.committee" in more:
            signed["veilsum.committee"] = signed["veilsum.registry"]
        more |= signed
    return {
        "veilsum.simulation-dir": "",
        "veilsum.ledger": str(network.out / "ledger.jsonl"),
        "veilsum.registry": str(network.out / "registry.txt"),
        "veilsum.cohort.size": cohort,
        "veilsum.cohort.tolerated-dropouts": dropouts,
        **more,
    }


def program(name: str) -> str:
    """A command of this Python's environment."""
    return str(BIN / name)


def environment(home: Path) -> dict[str, str]:
    """Of a process with a Flower folder of its own."""
    path = os.pathsep.join([str(BIN), os.environ.get("PATH", "")])
    return {**os.environ, **QUIET, "PATH": path, "FLWR_HOME": str(home)}


def free_port() -> int:
    """A port that nobody listens on, and that Linux gives to nobody before this process ends.

    It stays bound there: Flower's programs set SO_REUSEADDR, and can listen beside it.
    """
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(("127.0.0.1", 0))
    port = int(bound.getsockname()[1])
    if sys.platform == "linux":
        bound.detach()
    else:
        bound.close()
    return port


def wait_for(port: int) -> None:
    """Wait until somebody listens on a port of this machine.

    Raises:
        TimeoutError: nobody does.
    """
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end:
        with socket.socket() as caller:
            if caller.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError(f"nobody listens on port {port} after {_START_SECONDS:g} s")


def toml(value: bool | int | float | str) -> str:
    """A value as Flower's command line reads it."""
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else repr(value)


def main() -> None:
    """Run the network that the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="a new folder")
    parser.add_argument("--clients", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epsilon", type=float, default=50.0)
    parser.add_argument("--scheme", choices=("pairwise", "one-shot"), default="pairwise")
    whose = "one-shot rounds: members of a named committee; everyone if left out"
    parser.add_argument("--committee-size", type=int, help=whose)
    odds = "members are drawn instead, with this chance of each client"
    parser.add_argument("--committee-odds", type=float, help=odds)
    apart = "the named members' noise comes back; rounds from one of a client's to its next"
    parser.add_argument("--returned-apart", type=int, help=apart)
    parser.add_argument("--sites", action="store_true", help="a site's own process for each node")
    parser.add_argument("--signed", action="store_true", help="signed rounds and registry")
    given = parser.parse_args()
    # Leave as on Ctrl-C, and so through the end of `with`, if somebody else ends us.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    cohort, each = given.clients, given.rounds
    if given.returned_apart:
        # Members are no clients of such a run, and the others take turns.
        cohort = (given.clients - (given.committee_size or 0)) // given.returned_apart
        each = math.ceil(given.rounds / given.returned_apart)
    privacy = {
        "epsilon": given.epsilon,
        "delta": 1e-5,
        "rounds": each,
        "clip-l2": 1.0,
        "minimum-survivors": cohort - 1,
        "tolerated-colluders": 0,
    }
    committee = None
    if given.scheme == "one-shot":
        committee = given.committee_size or "everyone"
    site = None
    if given.sites:
        # Of what is on disk now, which is what `flwr run` sends.
        digest = hashlib.sha256(build_fab_from_disk(APP)).hexdigest()
        site = {"approved_apps": [digest], "training_seconds": 20.0, "answer_after_seconds": 23.0}
    out = given.out.resolve()
    with Network(
        out,
        given.clients,
        privacy,
        committee=committee,
        site=site,
        signed=given.signed,
        odds=given.committee_odds,
        apart=given.returned_apart,
    ) as network:
        settings = deployment_settings(network, cohort, 1)
        settings["veilsum.scheme.kind"] = given.scheme
        settings |= {"num-server-rounds": given.rounds, "veilsum.rounds": each}
        if given.returned_apart:
            settings["veilsum.horizon"] = given.rounds
        settings |= {"veilsum.privacy.epsilon": given.epsilon, "veilsum.privacy.clip-l2": 1.0}
        print(json.dumps(network.run(settings, 900.0), indent=2))


if __name__ == "__main__":
    main()
