"""This process among those that torchrun started: who it is, and how it talks to the others.

torchrun starts one process for each rank, on one machine or many, tells it in the environment who
it is, and ends all of them when one dies. The rest is torch.distributed: gloo between processors,
nccl between accelerators. Torch is loaded only where there is more than one rank.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import wraps
from pathlib import Path
from types import FrameType
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from protocol.exchange.ranks import ALONE, Ranks
from simulations.common.failures import RankError

P = ParamSpec("P")
T = TypeVar("T")

PATIENCE: Final = timedelta(hours=24)
"""How long a rank waits for one that is busy. A dead one is noticed by its connection at once."""

PIECE_BYTES: Final = 1 << 24
"""Bytes of a file that are sent at a time."""

_LOOKS: Final = 5
_PAUSE_SECONDS: Final = 0.02


def launched() -> bool:
    """Whether torchrun started this process, with more than one rank."""
    return "TORCHELASTIC_RUN_ID" in os.environ and int(os.environ.get("WORLD_SIZE", "1")) > 1


def own_cores() -> int:
    """Cores that this process may use, when the ranks of this machine share them."""
    allowed = getattr(os, "sched_getaffinity", None)
    cores = len(allowed(0)) if allowed else os.cpu_count() or 1
    return max(1, cores // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


def share_cores(processes: int) -> None:
    """Say that so many processes share the cores of this machine; this is one of them."""
    os.environ["LOCAL_WORLD_SIZE"] = str(processes)


def own_address() -> str:
    """Where other ranks reach rank 0's machine: torchrun found them by this name."""
    return os.environ.get("MASTER_ADDR", socket.gethostname())


@contextmanager
def joined() -> Iterator[Ranks]:
    """Meet the other ranks, if torchrun started any; leave them at the end."""
    if not launched():
        yield ALONE
        return
    # Imported by torch's optimisers while there is a group, it would hold on to the group, whose
    # threads then outlive the interpreter, and sometimes abort the process at its end (torch 2.13).
    import torch._dynamo  # noqa: F401
    import torch.distributed as dist

    try:
        dist.init_process_group("gloo", timeout=PATIENCE)
    except (RuntimeError, ValueError) as error:
        raise RankError(f"the ranks do not find one another ({_said(error)})") from error
    try:
        ranks = TorchRanks()
        with _naming_the_dead(ranks):
            yield ranks
    finally:
        dist.destroy_process_group()


@contextmanager
def _naming_the_dead(ranks: TorchRanks) -> Iterator[None]:
    """Name who died also where torchrun is quicker to end this rank than its connection breaks."""

    def ended(number: int, frame: FrameType | None) -> None:
        # Once is enough: torchrun may say so again while we leave.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise RankError(
            ranks.gone() or "this rank was told to end, as torchrun does when another one fails"
        )

    before = signal.signal(signal.SIGTERM, ended)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def device_of(ranks: Ranks, name: str) -> str:
    """The device that a rank trains on, where `engine.device` has this name."""
    if isinstance(ranks, TorchRanks):
        return ranks.train_on(name)
    if name == "cuda" and launched():
        # A rank that runs whole runs by itself. They need nothing of one another, so where there
        # are fewer devices than ranks, ranks share them.
        import torch

        if devices := torch.cuda.device_count():
            return f"cuda:{int(os.environ['LOCAL_RANK']) % devices}"
    return name


def _naming_lost(
    work: Callable[Concatenate[TorchRanks, P], T],
) -> Callable[Concatenate[TorchRanks, P], T]:
    """Say in our words that another rank is gone, and which one if it was on this machine."""

    @wraps(work)
    def wrapped(ranks: TorchRanks, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return work(ranks, *args, **kwargs)
        except RuntimeError as error:
            gone = ranks.gone()
            raise RankError(gone or f"another rank cannot be reached ({_said(error)})") from error

    return wrapped


def _said(error: Exception) -> str:
    """The first sentence of an error of torch."""
    return str(error).strip().partition("\n")[0].partition(". ")[0]


def _is_dead(process: int) -> bool:
    """Whether a process of this machine has ended, even if its parent does not know it yet."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] in ("Z", "X")


class TorchRanks:
    """The ranks of a process group of torch.distributed; a `Ranks`, and more of the engine's own.

    All of them must ask for the same things in the same order.
    """

    def __init__(self) -> None:
        import torch.distributed as dist

        self._rank, self._size = dist.get_rank(), dist.get_world_size()
        self._owned: frozenset[int] = frozenset()
        self._device = "cpu"
        self._group: Any = None
        self._places: list[tuple[str, int]] = []
        self._places = self.gather((socket.gethostname(), os.getpid()))

    @property
    def rank(self) -> int:
        """This process, from 0."""
        return self._rank

    @property
    def size(self) -> int:
        """How many there are."""
        return self._size

    def gone(self) -> str:
        """Name the ranks of this machine that have died, if there are any; waits a moment for one.

        Only a process of its own machine can be looked at. torchrun names the others.
        """
        here = socket.gethostname()
        near = [(r, process) for r, (host, process) in enumerate(self._places) if host == here]
        for _ in range(_LOOKS):
            dead = [f"rank {r} of {self.size} (process {p})" for r, p in near if _is_dead(p)]
            if dead:
                return f"{', '.join(dead)} on {here} died"
            # Its connections are closed a moment before it has ended.
            time.sleep(_PAUSE_SECONDS)
        return ""

    def take(self, indices: Iterable[int]) -> None:
        """Own these members of the cohort from now on."""
        self._owned = frozenset(indices)

    def owns(self, index: int) -> bool:
        """Whether this rank plays a member of the present cohort."""
        return index in self._owned

    @_naming_lost
    def gather(self, facts: T) -> list[T]:
        """What every rank has to tell, in the order of ranks."""
        import torch.distributed as dist

        gathered: list[Any] = [None] * self.size
        dist.all_gather_object(gathered, facts)
        return gathered

    @_naming_lost
    def broadcast(self, value: T) -> T:
        """What rank 0 gives, to all; what the others give counts for nothing."""
        import torch.distributed as dist

        given = [value]
        dist.broadcast_object_list(given, src=0)
        return given[0]

    @_naming_lost
    def swap(self, parts: Sequence[bytes]) -> list[bytes]:
        """What every rank has for us; `parts` is what we have for each of them."""
        import torch
        import torch.distributed as dist

        sizes = torch.tensor([len(part) for part in parts])
        theirs = torch.empty_like(sizes)
        dist.all_to_all_single(theirs, sizes)
        given = torch.from_numpy(np.frombuffer(b"".join(parts), np.uint8).copy())
        taken = torch.empty(int(theirs.sum()), dtype=torch.uint8)
        dist.all_to_all_single(taken, given, theirs.tolist(), sizes.tolist())
        cuts = theirs.cumsum(0)[:-1].tolist()
        return [piece.tobytes() for piece in np.split(taken.numpy(), cuts)]

    @_naming_lost
    def add(self, *vectors: NDArray[Any]) -> list[NDArray[Any]]:
        """The sum over all ranks of each vector, in one message; one dtype, any shapes."""
        import torch
        import torch.distributed as dist

        flat = np.concatenate([vector.ravel() for vector in vectors])
        sums = torch.from_numpy(flat).to(self._device)
        dist.all_reduce(sums, group=self._group)
        cuts = np.cumsum([vector.size for vector in vectors])[:-1]
        parts = np.split(sums.cpu().numpy(), cuts)
        return [part.reshape(vector.shape) for part, vector in zip(parts, vectors, strict=True)]

    def train_on(self, device: str) -> str:
        """One device for each rank, where "cuda" is asked for; sums then go between devices.

        The device of this rank, as torch names it.
        """
        if device != "cuda":
            return device
        import torch
        import torch.distributed as dist

        own = f"cuda:{os.environ['LOCAL_RANK']}"
        if self._group is None and torch.cuda.device_count() > int(os.environ["LOCAL_RANK"]):
            torch.cuda.set_device(own)
            self._device, self._group = own, dist.new_group(backend="nccl", timeout=PATIENCE)
        return own
