"""Compiled kernels: whether they give their known answers, and where their code is kept.

What needs numba is imported inside, so that a broken numba is a finding and not the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import get_context
from os.path import commonpath
from pathlib import Path

from simulations.reports.doctor.findings import Finding, Level
from simulations.reports.doctor.machine import free_bytes, readable_bytes


def known_answers(part_of_name: str, begin: Callable[[int, int, str], None]) -> Iterator[Finding]:
    """Check every kernel whose name contains a text, whatever came of the others.

    It is done in another process, because wrong machine code may do anything, and in a new one
    after each that was wrong.
    """
    from veilsum.compiled import KernelError, every_kernel

    every = list(every_kernel())
    chosen = [kernel for kernel in every if part_of_name in kernel.name]
    if every and not chosen:
        found = f"no name of a kernel contains {part_of_name!r}, so none was checked"
        yield Finding(Level.WARNING, "known answers", found, "leave --kernels out")
    right, process = 0, _process()
    for place, kernel in enumerate(chosen):
        begin(place, len(chosen), kernel.name)
        try:
            process.submit(_check, kernel.name).result()
            right += 1
        # A damaged entry of the cache raises whatever its reader does, or ends the process.
        except Exception as error:
            process.shutdown()
            process = _process()
            found = f"cannot be used: {type(error).__name__}: {error}"
            if isinstance(error, KernelError):
                found = "gives a wrong answer"
            remedy = KernelError(kernel.name, kernel.folder).remedy
            yield Finding(Level.WRONG, "known answers", f"{kernel.name} {found}", remedy)
    process.shutdown()
    if right:
        yield Finding(Level.OK, "known answers", f"{right} of {len(chosen)} kernels are right")


def _process() -> Executor:
    return ProcessPoolExecutor(1, get_context("spawn"))


def _check(name: str) -> None:
    from veilsum.compiled import every_kernel

    next(kernel for kernel in every_kernel() if kernel.name == name).check()


def caches() -> Iterator[Finding]:
    """Where compiled code is kept, how much of it, and what is left of older sources."""
    from veilsum.compiled import digest_of_sources, every_kernel

    about = "compiled code"
    kernels = list(every_kernel())
    if not kernels:
        found = "NUMBA_DISABLE_JIT is set: kernels are interpreted, slowly, and were not checked"
        yield Finding(Level.WARNING, about, found, "unset it")
        return
    kept = sorted({kernel.folder for kernel in kernels if kernel.folder is not None})
    in_memory = sum(kernel.folder is None for kernel in kernels)
    if in_memory:
        found = f"every process compiles {in_memory} of {len(kernels)} kernels again"
        remedy = "set NUMBA_CACHE_DIR to a folder that can be written to"
        yield Finding(Level.WARNING, about, found, remedy)
    if not kept:
        return
    entries = [path for folder in kept for path in Path(folder).glob("*.nb[ci]")]
    old = [path for path in entries if f"_{digest_of_sources()}-" not in path.name]
    for folder in kept:
        try:
            free_bytes(Path(folder))
        except OSError as error:
            found, remedy = (
                f"{folder} cannot be written to: {error.strerror}",
                "make room, or set NUMBA_CACHE_DIR",
            )
            yield Finding(Level.WARNING, about, found, remedy)
    found = f"{_size(entries)} in {len(kept)} folders, at or below {commonpath(kept)}"
    yield Finding(Level.OK, about, found)
    if old:
        found = f"{_size(old)} of it belong to older sources and are never read"
        remedy = f"*.nbi and *.nbc without {digest_of_sources()} in their names can be deleted"
        yield Finding(Level.NOTE, about, found, remedy)


def _size(files: list[Path]) -> str:
    return readable_bytes(sum(path.stat().st_size for path in files))
