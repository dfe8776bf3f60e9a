"""Tasks of a SuperNode in process mode: it hands them out, and we answer them one by one.

flwr names this interface for its own processes (`flower-superexec`, `flwr-clientapp`), with a
secret that keeps others from taking tasks, and calls it experimental: `make test-flower` says with
which version it was tried.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import httpx
from flwr.app import Context, Error, Message

from protocol.adapters.flower.client import REFUSED
from protocol.adapters.flower.log import warn
from protocol.errors import ConfigurationError

try:
    from flwr.common.constant import SubStatus
    from flwr.proto.runtime_pb2 import AcquireTaskRequest, SendTaskHeartbeatRequest
    from flwr.supercore.constant import TaskType
    from flwr.supercore.interceptors import (
        RuntimeTokenHttpInterceptor,
        RuntimeVersionHttpInterceptor,
        SuperExecAuthHttpInterceptor,
    )
    from flwr.supercore.retry import RetryInvoker, exponential
    from flwr.supercore.run import RunNotRunningException
    from flwr.supercore.runtime import RuntimeHttpClient
    from flwr.supernode.runtime.run_clientapp import (
        pull_task_input,
        push_message,
        push_task_output,
    )
except ImportError as error:
    raise ConfigurationError(
        "flwr", f"this version does not fit: {error}", "1.42, as this was tried with"
    ) from None

Answer = Callable[[Message, Context, bytes], Message]

POLL_SECONDS: Final = 0.2
HEARTBEAT_SECONDS: Final = 20.0
_RETRY_SECONDS: Final = 60.0
"""For so long a SuperNode may be away while a task is answered."""
_NAME: Final = "flwr-clientapp"
_ACQUIRE: Final = frozenset({"/flwr.proto.Runtime/AcquireTask"})


class Node:
    """The SuperNode whose tasks we take.

    Args:
        address: of its Runtime API, HOST:PORT.
        secret: that it was started with (`--superexec-auth-secret-file`).
        certificates: to know it by, PEM; None without TLS, on one machine.
    """

    def __init__(self, address: str, secret: bytes, certificates: bytes | None = None) -> None:
        self._address, self._certificates = address, certificates
        self._stop = threading.Event()
        auth = SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods=_ACQUIRE)
        self._client = self._connected(auth)

    def _connected(self, interceptor: Any, seconds: float = 0.0) -> RuntimeHttpClient:
        """A client that tries again for so long.

        Flower's own tries for ever, and ends its process where a task was given up.
        """
        tries = RetryInvoker(
            lambda: exponential(max_delay=5),
            httpx.TransportError,
            max_tries=None if seconds else 1,
            max_time=seconds or None,
            wait_function=self._stop.wait,
        )
        return RuntimeHttpClient.from_server_address(
            server_address=self._address,
            insecure=self._certificates is None,
            root_certificates=self._certificates,
            interceptors=[RuntimeVersionHttpInterceptor(component_name=_NAME), interceptor],
            retry_invoker=tries,
        )

    def serve(self, answer: Answer, after: Callable[[], object] = lambda: None) -> None:
        """Answer tasks until somebody stops us.

        Args:
            after: called after every task, when its answer is sent.
        """
        away = False
        while not self._stop.is_set():
            token = None
            try:
                token, away = self._token(), False
            except Exception as error:
                if not away:
                    warn(f"no SuperNode at {self._address}: {type(error).__name__}: {error}")
                away = True
            if token is not None:
                self._answered(token, answer)
                after()
            else:
                self._stop.wait(POLL_SECONDS)

    def stop(self) -> None:
        """Take no more tasks, and wait for nothing."""
        self._stop.set()

    def wait(self, seconds: float) -> None:
        """Wait, unless we are stopped."""
        self._stop.wait(seconds)

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _token(self) -> str | None:
        """Of the next task, if there is one; only of those that Flower would give a client app."""
        asked = AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])
        found = self._client.AcquireTask(asked)
        return str(found.token) if found.HasField("task") and found.token else None

    def _answered(self, token: str, answer: Answer) -> None:
        """Answer one task. What goes wrong costs that one, and its words stay here."""
        client = self._connected(RuntimeTokenHttpInterceptor(token), _RETRY_SECONDS)
        try:
            with _heartbeats(client):
                # Of a message that we cannot read, the SuperNode tells the server in time.
                message, context, _, app = pull_task_input(client)
                try:
                    reply = answer(message, context, app.content)
                except Exception as error:
                    warn(f"no answer: {type(error).__name__}: {error}")
                    reply = Message(Error(REFUSED, "OwnReasons"), reply_to=message)
                if self._stop.is_set():
                    return
                push_message(client, reply, context)
                push_task_output(client, context, SubStatus.COMPLETED, "")
        except (Exception, RunNotRunningException) as error:
            warn(f"a task was lost: {type(error).__name__}: {error}")
        finally:
            client.close()


@contextmanager
def _heartbeats(client: RuntimeHttpClient) -> Iterator[None]:
    """Tell the SuperNode that a task is being answered; without it, long training is given up."""
    over = threading.Event()

    def beat() -> None:
        while not over.wait(HEARTBEAT_SECONDS):
            try:
                client.SendTaskHeartbeat(SendTaskHeartbeatRequest())
            except (Exception, RunNotRunningException) as error:
                warn(f"no heartbeat: {type(error).__name__}")

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def run(answer: Answer, node: Node, after: Callable[[], object]) -> None:
    """Serve until SIGINT or SIGTERM."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda *_: node.stop())
    try:
        node.serve(answer, after)
    finally:
        node.close()
