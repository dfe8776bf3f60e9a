"""Tasks of a SuperNode in process mode: it hands them out, and we answer them one by one.

flwr names this interface for its own processes (`flower-superexec`, `flwr-clientapp`), with a
secret that keeps others from taking tasks, and calls it experimental: `make test-flower` says with
which version it was tried.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import httpx
from flwr.app import Context, Message

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
    from flwr.supercore.retry import make_simple_http_retry_invoker
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
        auth = SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods=_ACQUIRE)
        self._client = self._connected(auth)

    def _connected(self, interceptor: Any) -> RuntimeHttpClient:
        return RuntimeHttpClient.from_server_address(
            server_address=self._address,
            insecure=self._certificates is None,
            root_certificates=self._certificates,
            interceptors=[RuntimeVersionHttpInterceptor(component_name=_NAME), interceptor],
            retry_invoker=make_simple_http_retry_invoker(),
        )

    def serve(self, answer: Answer, stop: threading.Event) -> None:
        """Answer tasks until somebody stops us."""
        while not stop.is_set():
            token = self._token()
            if token is None:
                stop.wait(POLL_SECONDS)
            else:
                self._answered(token, answer)

    def close(self) -> None:
        """Take no more tasks."""
        self._client.close()

    def _token(self) -> str | None:
        """Of the next task, if there is one; only of those that Flower would give a client app."""
        asked = AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP])
        found = self._client.AcquireTask(asked)
        return str(found.token) if found.HasField("task") and found.token else None

    def _answered(self, token: str, answer: Answer) -> None:
        client = self._connected(RuntimeTokenHttpInterceptor(token))
        context, status, details = None, SubStatus.FAILED, "failed"
        try:
            with _heartbeats(client):
                message, context, _, app = pull_task_input(client)
                push_message(client, answer(message, context, app.content), context)
                status, details = SubStatus.COMPLETED, ""
        except (httpx.HTTPError, RuntimeError) as error:
            # A task that the SuperNode has given up; the next one may be answered again.
            warn(f"a task was lost: {type(error).__name__}: {error}")
        finally:
            push_task_output(client, context, status, details)
            client.close()


@contextmanager
def _heartbeats(client: RuntimeHttpClient) -> Iterator[None]:
    """Tell the SuperNode that a task is being answered; without it, long training is given up."""
    over = threading.Event()

    def beat() -> None:
        while not over.wait(HEARTBEAT_SECONDS):
            try:
                client.SendTaskHeartbeat(SendTaskHeartbeatRequest())
            except httpx.HTTPError as error:
                warn(f"no heartbeat: {type(error).__name__}")

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def run(answer: Answer, node: Node) -> None:
    """Serve until SIGINT or SIGTERM."""
    import signal

    stop = threading.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda *_: stop.set())
    try:
        node.serve(answer, stop)
    finally:
        node.close()
