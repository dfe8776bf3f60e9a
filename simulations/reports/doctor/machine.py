"""The machine: processor, memory, folders that can be written to, and data sets."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from simulations.common.provenance import machine
from simulations.common.ranks import own_cores
from simulations.reports.doctor.findings import Finding, Level


def processor() -> Iterator[Finding]:
    """What numba compiles for, and what there is of it."""
    from numba.core.registry import cpu_target

    _, name, features = cpu_target.target_context.codegen().magic_tuple()
    vectors = [
        feature[1:]
        for feature in features.split(",")
        if feature.startswith(("+sse4", "+avx", "+fma", "+neon", "+sve"))
    ]
    with_these = f"numba compiles for {name or 'any'} with {', '.join(vectors) or 'no vectors'}"
    found = f"{machine()['processor']}, {own_cores()} of {os.cpu_count()} cores; {with_these}"
    yield Finding(Level.OK, "processor", found)
    if "SC_PHYS_PAGES" in getattr(os, "sysconf_names", ()):
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        yield Finding(Level.OK, "memory", readable_bytes(memory))


def folders() -> Iterator[Finding]:
    """Whether files can be written where programs do so."""
    for subject, where, level, remedy in (
        ("temporary folder", tempfile.gettempdir, Level.WRONG, "set TMPDIR to one that can be"),
        ("home", Path.home, Level.WARNING, "set HOME to a folder that can be"),
        ("current folder", Path.cwd, Level.WARNING, "change to another, or give runs --out"),
    ):
        try:
            folder = Path(where())
            free = free_bytes(folder)
        # Python finds no temporary folder, no home, or a current folder that was deleted.
        except (OSError, RuntimeError) as error:
            yield Finding(level, subject, f"cannot be written to: {error}", remedy)
        else:
            yield Finding(Level.OK, subject, f"{folder}, {readable_bytes(free)} free")


def free_bytes(folder: Path) -> int:
    """Room in a folder."""
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        file.write(b"\0")
    return shutil.disk_usage(folder).free


def readable_bytes(count: int) -> str:
    """A number of bytes with one decimal, in the unit that suits it."""
    unit, name = (1e9, "GB") if count >= 1e9 else (1e6, "MB")
    return f"{count / unit:,.1f} {name}"


def data_sets(data_dir: Path | None) -> Iterator[Finding]:
    """Which data sets could be read; what is in their files is not looked at."""
    from simulations.learning.data import DataError, DataFolder, find_data_dir, sets_in

    try:
        folder = DataFolder(find_data_dir(data_dir))
    except DataError as error:
        yield Finding(Level.NOTE, "data sets", f"only the digits that come with it: {error}")
        return
    found = ", ".join(("digits", *sets_in(folder)))
    yield Finding(Level.OK, "data sets", f"{found}; looked for in {folder.root}")
