"""Ports of this machine for servers that tests start."""

from __future__ import annotations

import socket
import sys


def free_port() -> int:
    """A port that nobody listens on, and that Linux gives to nobody before this process ends.

    It stays bound. Who sets SO_REUSEADDR, as gRPC and torch do, can listen beside it.
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
