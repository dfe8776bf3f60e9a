"""What ends a command without being a mistake in the program: one line each, and no traceback.

A wrong option or a spent budget has a typed error of ours. What the machine refuses (a disk, a
folder, a package that is not installed) is put into words here. Everything else is a mistake in
the program, and keeps its traceback. Nothing is imported that an installation without extras may
lack: this module has to say just that.
"""

from __future__ import annotations

import errno
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from veilsum.extras import install_command

EXTRAS: Final[Mapping[str, str]] = {
    "jinja2": "cli",
    "matplotlib": "sim",
    "mlflow": "mlflow",
    "packaging": "cli",
    "rich": "cli",
    "sklearn": "sim",
    "tensorboard": "tensorboard",
    "tomli_w": "cli",
    "torch": "sim",
    "typer": "cli",
    "wandb": "wandb",
    "distributed": "dask",
    "flwr": "flower",
    "nvflare": "nvflare",
    "pyarrow": "parquet",
    "pfl": "pfl",
}
"""For each package that a plain installation lacks, as it is imported: the extra that has it."""

_REMEDIES: Final[Mapping[int, str]] = {
    errno.ENOSPC: "make room",
    errno.EDQUOT: "make room",
    errno.EFBIG: "raise the limit on the size of a file",
    errno.EROFS: "choose a folder on a writable disk",
    errno.EACCES: "choose a folder that you may write to",
    errno.EPERM: "choose a folder that you may write to",
    errno.EEXIST: "there is a file where a folder should be; choose another folder",
    errno.ENOTDIR: "there is a file where a folder should be; choose another folder",
    errno.EISDIR: "there is a folder where a file should be; choose another file",
}

_RESUMED: Final = frozenset({"audit", "reproduce", "run", "sweep"})
"""Commands that go on from what an interrupted one has kept."""

KEPT: Final = "what was finished is kept: give the same command again to continue"


class DivergedError(RuntimeError):
    """The model left the range of numbers: nothing that follows would mean anything."""

    def __init__(self, number: int, loss: float) -> None:
        super().__init__(
            f"round {number + 1}: the loss is {loss}: lower local.learning_rate or "
            "server.learning_rate; what was recorded before this round is intact"
        )
        self.number, self.loss = number, loss

    def __reduce__(self) -> tuple[type[DivergedError], tuple[int, float]]:
        """Survive pickling between processes."""
        return DivergedError, (self.number, self.loss)


class RankError(RuntimeError):
    """The ranks of a run cannot work together any more."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"{problem}; {KEPT}, with any number of ranks")
        self.problem = problem

    def __reduce__(self) -> tuple[type[RankError], tuple[str]]:
        """Survive pickling between processes."""
        return RankError, (self.problem,)


class CallbackError(RuntimeError):
    """What was to be told of a run could not start, so the run did not, either."""

    def __init__(self, callback: str, problem: str) -> None:
        super().__init__(f"{callback} could not start, and nothing was run: {problem}")
        self.callback, self.problem = callback, problem

    def __reduce__(self) -> tuple[type[CallbackError], tuple[str, str]]:
        """Survive pickling between processes."""
        return CallbackError, (self.callback, self.problem)


@contextmanager
def kept_so_far() -> Iterator[None]:
    """Add a note to errors of the machines: what was finished is kept, and can be continued."""
    try:
        yield
    except Exception as error:
        # Loaded here, as in `one_line`.
        from protocol.errors import RankFailedError

        # A ledger that cannot be written to is an error of ours, because of one of the system.
        of_machines = (OSError, RankFailedError)
        if isinstance(error, of_machines) or isinstance(error.__cause__, OSError):
            error.add_note(KEPT)
        raise


def one_line(error: Exception) -> str | None:
    """What to tell whoever gave a command that ended in an error.

    One line that says what is wrong and what to do, or None for a mistake in the program. A
    configuration gets a line for each of its problems, and a block of TOML that would mend them.
    """
    if isinstance(error, ImportError):
        # Our own packages may be what cannot be imported.
        text = _missing(error)
        return None if text is None else " ".join(f"{type(error).__name__}: {text}".split())
    # Loaded here: it costs every command's start as much as the rest of this module.
    from concurrent.futures.process import BrokenProcessPool

    from protocol.errors import ConfigurationError

    if isinstance(error, OSError):
        text = _refused(error)
    elif isinstance(error, BrokenProcessPool):
        text = f"a worker died, perhaps for lack of memory; {KEPT}"
    else:
        text = str(error) if _is_for_users(error) else None
    if text is None:
        return None
    notes = getattr(error, "__notes__", ())
    if isinstance(error, ConfigurationError) and (error.others or notes):
        begin = f"{len(error.others) + 1} problems:\n" if error.others else ""
        return "\n".join([f"{type(error).__name__}: {begin}{text}", *notes])
    notes = "".join(f"; {note}" for note in notes)
    return " ".join(f"{type(error).__name__}: {text}{notes}".split())


def interrupted(words: Sequence[str]) -> str:
    """What to tell whoever interrupted a command: one line with the command that goes on.

    Args:
        words: of the command line, `sys.argv`.
    """
    program, *given = words
    name = "veilsum" if Path(program).stem == "veilsum" else "python -m veilsum"
    command = f"{name} {shlex.join(given)}"
    rest = list(given)
    while rest and rest[0].startswith("-"):
        # Of the options that stand before a verb, this one has a value.
        if rest.pop(0) == "--log-level" and rest:
            rest.pop(0)
    verb = rest[0] if rest else ""
    if verb == "audit" and not any(word.partition("=")[0] == "--out" for word in given):
        return (
            "interrupted; an audit without --out keeps nothing; to begin one that can be resumed: "
            f"{command} --out veilsum-audit"
        )
    if verb in _RESUMED and "--dry-run" not in given:
        return f"interrupted; what was finished is kept; to resume: {command}"
    return f"interrupted; nothing was kept; to begin again: {command}"


def _missing(error: ImportError) -> str | None:
    """Which extra has what is missing; None for a module of our own, say."""
    if error.name == "fcntl":
        return str(error)
    package = (error.name or "").partition(".")[0]
    extra = EXTRAS.get(package)
    if extra is None:
        return None
    found = "" if isinstance(error, ModuleNotFoundError) else f" ({error})"
    return (
        f"this command needs {package}{found}, which comes with the extra {extra}: "
        f"{install_command(extra)}"
    )


def _refused(error: OSError) -> str | None:
    """What the system refused, of which file, and what helps; None if it says nothing."""
    if error.errno is None:
        return str(error) or None
    what = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)
    remedy = _REMEDIES.get(error.errno)
    return what if remedy is None else f"{what}; {remedy}"


def _is_for_users(error: Exception) -> bool:
    """Whether an error was written for whoever gave the command."""
    from dp import PrivacyError
    from protocol.errors import ConfigurationError, PolicyError, RankFailedError
    from secagg import ProtocolError
    from veilsum.compiled import KernelError

    ours = (CallbackError, ConfigurationError, DivergedError, KernelError, RankError)
    return isinstance(error, (*ours, RankFailedError, PolicyError, PrivacyError, ProtocolError))
