"""A private mean over your own sockets: a server and six client processes, one of them killed.

Every client has a folder with its identity, the registry of all identities, and its history. The
bytes between the processes are frames: four bytes of length, then what `veilsum` made. Client 3 is
killed when its masked vector is ready and not yet sent; the mean of the others is still computed. A
real deployment has to add TLS.

Needs: veilsum
Run with: python examples/custom_transport.py
"""

from __future__ import annotations

import hashlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from dp import Ledger
from protocol import (
    PrivacyGoal,
    PrivateTraining,
    RemoteAggregator,
    RemoteClient,
    RoundClient,
    RoundResult,
    Stage,
    StoredHistory,
    TrainingPlan,
    client_policy,
)
from protocol.exchange.remote import answer_or_refuse
from secagg import Identity
from secagg.pairwise.transitions import ClientPhase
from sketch.controllers import FixedRate

CLIENTS, KILLED, DIMENSION = 6, 3, 16
STAGE_SECONDS = 120.0
"""Time for all answers of a stage; whoever takes longer is lost."""
STALL_SECONDS = 5.0
"""Time for one frame, once it has begun to arrive."""
LARGEST_FRAME = 1 << 20
"""Neither side can make the other allocate more."""
MODEL = hashlib.sha256(b"sixteen readings, none above one").digest()
PLAN = TrainingPlan(
    goal=PrivacyGoal(epsilon=8.0, delta=1e-6, rounds=1),
    cohort=CLIENTS,
    tolerated_dropouts=1,
    tolerated_colluders=1,
    clip_l2=1.0,
    lifetime_seconds=3600,
)
"""Agreed upon beforehand: clients derive their policy from it and accept nothing less."""


def vector(index: int) -> np.ndarray:
    """What a client holds, float64[DIMENSION], of norm at most 1."""
    return np.sin(np.arange(DIMENSION) * (index + 1.0)) / 4.0


def send(link: socket.socket, data: bytes, seconds: float = STALL_SECONDS) -> None:
    """Send one frame: its length, and the bytes."""
    link.settimeout(seconds)
    link.sendall(len(data).to_bytes(4, "big") + data)


def receive(link: socket.socket, seconds: float = STALL_SECONDS) -> bytes:
    """One frame; OSError if it is cut off, too long, or does not come in time."""
    end = time.monotonic() + seconds
    size = int.from_bytes(_exactly(link, 4, end), "big")
    if size > LARGEST_FRAME:
        raise OSError(f"a frame of {size} bytes")
    return _exactly(link, size, end)


def _exactly(link: socket.socket, size: int, end: float) -> bytes:
    data = bytearray()
    while len(data) < size:
        link.settimeout(max(end - time.monotonic(), 0.001))
        part = link.recv(size - len(data))
        if not part:
            raise ConnectionResetError("the other side is gone")
        data += part
    return bytes(data)


class Links:
    """The server's ends, by the client's index; clients say who they are and sign what they say."""

    def __init__(self, listener: socket.socket, registry: Sequence[bytes]) -> None:
        self._links: dict[int, socket.socket] = {}
        end = time.monotonic() + STAGE_SECONDS
        while len(self._links) < len(registry) and time.monotonic() < end:
            listener.settimeout(max(end - time.monotonic(), 0.001))
            try:
                link, _ = listener.accept()
                self._links.setdefault(registry.index(receive(link)), link)
            except (OSError, ValueError) as error:
                print(f"nobody came, or somebody who is no client: {error}")

    def exchange(
        self, stage: Stage, messages: Sequence[tuple[int, bytes]]
    ) -> Iterator[tuple[int, bytes]]:
        """Send all messages, then yield the answers as they arrive."""
        waiting = {}
        for index, data in messages:
            try:
                send(self._links[index], data)
                waiting[self._links[index]] = index
            except (KeyError, OSError) as error:
                print(f"client {index} left before {stage}: {error}")
        end = time.monotonic() + STAGE_SECONDS
        while waiting and time.monotonic() < end:
            ready, _, _ = select.select(list(waiting), [], [], max(end - time.monotonic(), 0))
            for link in ready:
                index = waiting.pop(link)
                try:
                    answer = receive(link)
                except OSError as error:
                    print(f"client {index} is lost at {stage}: {error}")
                    continue
                yield index, answer

    def close(self) -> None:
        """Clients take this for the end of the round."""
        for link in self._links.values():
            link.close()


def serve(listener: socket.socket, registry: Sequence[bytes], folder: Path) -> RoundResult:
    """The server: it knows only public keys, and charges the sum before anybody opens it."""
    links = Links(listener, registry)
    try:
        with Ledger.open(folder / "ledger.jsonl") as ledger:
            remote = RemoteAggregator(links.exchange)
            training = PrivateTraining(
                PLAN, DIMENSION, FixedRate(1.0), remote, ledger, clock=time.time
            )
            return training.run_round(registry, MODEL)
    finally:
        links.close()


def take_part(index: int, port: int, folder: Path) -> None:
    """A client, from its folder."""
    identity = Identity.from_private_bytes((folder / "identity").read_bytes())
    registry = [bytes.fromhex(line) for line in (folder / "registry").read_text().split()]
    with StoredHistory(folder / "history", PLAN.goal) as history:
        policy = client_policy(PLAN, DIMENSION)
        client = RoundClient(identity, registry, policy, history, clock=time.time)
        member = RemoteClient(client, MODEL, lambda _: vector(index))
        with socket.create_connection(("127.0.0.1", port), STAGE_SECONDS) as link:
            send(link, identity.public)
            while not member.is_over:
                try:
                    data = receive(link, 2 * STAGE_SECONDS)
                except ConnectionResetError:
                    return  # the server has what it needs, or has given up
                answer, error = answer_or_refuse(member, data)
                if index == KILLED and client.phase is ClientPhase.MASKED:
                    os.kill(os.getpid(), signal.SIGKILL)
                send(link, answer)
                if error:
                    print(f"client {index} left the round: {error}")


def enrol(folder: Path) -> bytes:
    """A client's folder; its public key, which is all that leaves it."""
    folder.mkdir(mode=0o700)
    identity = Identity.generate()
    (folder / "identity").write_bytes(identity.private_bytes())
    return identity.public


def start(index: int, port: str, folder: Path) -> subprocess.Popen[bytes]:
    """A client process; it is told where its folder and the server are, and nothing else."""
    command = [sys.executable, __file__, str(index), port, str(folder)]
    return subprocess.Popen(command)  # noqa: S603


def main(folder: Path) -> None:
    """Enrol all clients, start them, serve, and print the result."""
    registry = [enrol(folder / str(index)) for index in range(CLIENTS)]
    for index in range(CLIENTS):
        (folder / str(index) / "registry").write_text("\n".join(key.hex() for key in registry))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        started = [start(index, port, folder / str(index)) for index in range(CLIENTS)]
        try:
            result = serve(listener, registry, folder)
            codes = [process.wait(STAGE_SECONDS) for process in started]
        finally:
            for process in started:
                process.kill()
                process.wait()
    print("exit codes of the clients:", *codes)
    print("survivors:", *result.outcome.total.survivors)
    print("mean:", json.dumps(result.release.update.round(6).tolist()))
    print("epsilon:", result.epsilons.guaranteed)
    print("spent:", result.epsilons.server)
    with StoredHistory(folder / str(KILLED) / "history", PLAN.goal) as history:
        print(f"epsilon in the history of client {KILLED}, which sent nothing:", history.epsilon)


if __name__ == "__main__":
    if sys.argv[1:]:
        take_part(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
    else:
        with tempfile.TemporaryDirectory() as name:
            main(Path(name))
