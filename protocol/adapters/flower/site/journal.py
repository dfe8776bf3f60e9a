"""What a running site tells its operator: a line for each task, counts, a file of metrics.

No count and no line of a task depends on what a training did: the site has answered alike. The
warning that one failed does.
"""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from flwr.app import Context, Message

from protocol.adapters.flower.admission import terms_of
from protocol.adapters.flower.log import say, warn
from protocol.adapters.flower.record import (
    ANNOUNCED,
    TRAINING,
    Step,
    read_answer,
    read_request,
)
from protocol.adapters.flower.site.status import metrics, status_of
from protocol.exchange.remote import OTHER, open_answer
from protocol.exchange.stages import Refusal
from secagg.storage import replace_durably

METRICS: Final = "metrics.prom"
_NO_ROUND: Final = {"session": None, "round": None}
_COUNTED: Final = (
    ("rounds", "outcome", "rounds joined, and those in which a masked update was sent"),
    ("refusals", "reason", "requests that were refused, by what the server was told"),
)
_REASON: Final = re.compile("PolicyError|RemoteProtocolError")
_COUNT: Final = re.compile(r'^veilsum_(\w+)_total\{\w+="(\w+)"\} ([0-9]+)$', re.MULTILINE)


class Journal:
    """Watches the answers of a site.

    Args:
        home: the site's folder, where counts and metrics lie in one file.
        answer: what it answers with.
    """

    def __init__(self, home: Path, answer: Callable[[Message, Context, bytes], Message]) -> None:
        self._home, self._answer, self._counts = home, answer, counts(home)
        self._round: dict[str, str | int | None] = dict(_NO_ROUND)

    def answer(self, message: Message, context: Context, app: bytes) -> Message:
        """Answer, and say so."""
        reply, request = self._answer(message, context, app), None
        with suppress(Exception):  # whatever a server sent: it was answered
            request = read_request(message.content)
        step = request.step if request else None
        outcome = self._count(step, reply)
        if request and step in ANNOUNCED:
            self._round = dict(_NO_ROUND)
            if outcome == "answered":  # a round that was refused names no later line
                terms = terms_of(request, None)
                self._round = {"session": terms.session_id.hex(), "round": terms.round_number}
        about = {"run": context.run_id, **self._round, "step": step and step.value}
        say("task", {**about, "outcome": outcome})
        return reply

    def write(self) -> None:
        """Write status and counts into the folder."""
        try:
            text = metrics(status_of(self._home, own=True)) + counted(self._counts)
            replace_durably(self._home / METRICS, text.encode())
        except OSError as error:
            warn(f"no metrics: {error}")

    def _count(self, step: Step | None, reply: Message) -> str:
        """The outcome of a task."""
        answer = read_answer(reply)
        if not isinstance(answer, Refusal):
            answer = open_answer(answer)
        if isinstance(answer, Refusal):
            found = _REASON.search(answer.reason)
            self._counts["refusals", found.group() if found else OTHER] += 1
            return "refused"
        self._counts["rounds", "joined"] += step in (Step.ADVERTISE, Step.UPLOAD)
        self._counts["rounds", "sent"] += step in TRAINING
        return "answered"


def counts(home: Path) -> Counter[tuple[str, str]]:
    """What a running site has counted, from its file."""
    path = home / METRICS
    text = path.read_text() if path.exists() else ""
    return Counter({(name, label): int(n) for name, label, n in _COUNT.findall(text)})


def counted(found: Counter[tuple[str, str]]) -> str:
    """Counts as Prometheus text."""
    lines = []
    for name, label, text in _COUNTED:
        full = f"veilsum_{name}_total"
        lines += [f"# HELP {full} {text}", f"# TYPE {full} counter"]
        lines += [
            f'{full}{{{label}="{v}"}} {n}' for (k, v), n in sorted(found.items()) if k == name
        ]
    return "\n".join([*lines, ""])


class JsonLines(logging.Formatter):
    """Log records as JSON, one to a line: time, level, event, and what a task was about.

    Of an exception its type alone: a trace has lines, and words that somebody else chose.
    """

    def format(self, record: logging.LogRecord) -> str:
        """A record as one line."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {"time": time, "level": record.levelname.lower(), "event": record.getMessage()}
        if record.exc_info and record.exc_info[0]:
            line["error"] = record.exc_info[0].__name__
        return json.dumps({**line, **getattr(record, "veilsum", {})})


def log_as_json() -> None:
    """Have everything that is logged in this process be such lines, on standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    logging.basicConfig(handlers=[handler], force=True)
    logging.getLogger("veilsum").setLevel(logging.INFO)
    theirs = logging.getLogger("flwr")
    theirs.handlers, theirs.propagate = [], True
