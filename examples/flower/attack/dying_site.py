"""`veilsum site`, which kills itself at a moment that a file names; `play.py` starts it.

Needs: veilsum[flower]

    python dying_site.py MOMENT ANSWERS site run --home HOME ...

MOMENT holds `STEP WHEN`: before the step, during it, at the first byte that it makes durable,
or after it, when the answer is made and not yet sent. It is removed first, so that the site lives
when it is started again. ANSWERS gets a line for each answer: hashes of the request and of itself.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
from pathlib import Path
from typing import Any

from protocol.adapters.flower.record import KEY
from protocol.adapters.flower.site import serving
from veilsum.__main__ import main


def armed(moment: Path, answers: Path) -> None:
    """Make this process die at the moment."""
    answer, sync = serving.guarded, os.fsync

    def dies(when: str) -> bool:
        if not moment.exists() or moment.read_text() != when:
            return False
        moment.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
        return True

    def guarded(find: Any, message: Any, *others: Any) -> Any:
        record = message.content.get(KEY)
        if record is None:
            return answer(find, message, *others)
        step, asked = record["step"], hashlib.sha256(record["payload"]).hexdigest()
        dies(f"{step} before")
        os.fsync = lambda file: dies(f"{step} during") or sync(file)
        try:
            reply = answer(find, message, *others)
        finally:
            os.fsync = sync
        dies(f"{step} after")
        data = hashlib.sha256(reply.content[KEY]["answer"]).hexdigest()
        with answers.open("a") as out:
            out.write(f"{asked} {data}\n")
        return reply

    serving.guarded = guarded


if __name__ == "__main__":
    moment_file, answers_file, *arguments = sys.argv[1:]
    armed(Path(moment_file), Path(answers_file))
    sys.argv[1:] = arguments
    main()
