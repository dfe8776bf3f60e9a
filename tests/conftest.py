"""Settings for the whole suite."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Doubles that several folders share. They have a folder of their own: `tests/` itself on the path
# would hide the packages, whose names its folders bear.
_DOUBLES = str(Path(__file__).parent / "doubles")
if _DOUBLES not in sys.path:
    sys.path.insert(0, _DOUBLES)

NO_DATA = "no data sets"
VARIABLE = "VEILSUM_DATA_DIR"
BESIDE = Path(__file__).parents[2] / "shared" / "data"

# Shared machines stall: a deadline would make timing, not behaviour, the subject of a test.
settings.register_profile(
    "suite", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("suite")


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder with the real data sets, or a skip that says how to get one."""
    named = os.environ.get(VARIABLE)
    folder = Path(named) if named else BESIDE
    if not folder.is_dir():
        pytest.skip(f"{NO_DATA} in {folder}: {VARIABLE} names another folder")
    return folder


@pytest.fixture(scope="module", autouse=True)
def nobody_waits_for_a_disk() -> Iterator[None]:
    """No test outlives its host: a file is synced only as far as its descriptor is looked at."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", os.fstat)
        yield


_SLOW = b"mark.slow"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Of slow tests alone, import no module that has none: that would take most of a minute."""
    if config.getoption("markexpr") != "slow" or not collection_path.match("test_*.py"):
        return None
    return _SLOW not in collection_path.read_bytes() or None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: Iterable[pytest.Item]) -> None:
    """No slow test stands where the above does not see it."""
    for item in items:
        if item.get_closest_marker("slow") and _SLOW not in item.path.read_bytes():
            raise pytest.UsageError(f"{item.nodeid}: pytest.mark.slow is not in its own module")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say last, in one line, what a run without data sets has left out."""
    line = left_out(terminalreporter.stats.get("skipped", ()))
    if line:
        terminalreporter.write_line(line)


def left_out(reports: Iterable[pytest.TestReport]) -> str:
    """How many of the skipped tests want data sets, and how to run them; empty if none does."""
    wanting = sum(f"Skipped: {NO_DATA}" in str(report.longrepr) for report in reports)
    if not wanting:
        return ""
    return (
        f"{wanting} skipped for want of data sets, which nothing else here needs: "
        f"{VARIABLE}=FOLDER make test runs them as well (docs/simulations.md)"
    )


_SEEN: dict[str, int] = {}


@pytest.fixture(autouse=True)
def every_compiled_version_has_a_known_answer() -> Iterator[None]:
    """A kernel that is called with types for which it has no known answer is unprotected."""
    yield
    compiled = sys.modules.get("veilsum.compiled")
    for kernel in () if compiled is None else compiled.kernels_so_far():
        if _SEEN.get(kernel.name) != len(kernel.dispatcher.overloads):
            _SEEN[kernel.name] = len(kernel.dispatcher.overloads)
            assert kernel.unchecked == [], kernel.name
