"""Pictures of pages by a headless Chromium, where there is one."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
MOST_SECONDS: Final = 120


@dataclass(frozen=True, slots=True)
class Window:
    """A window onto a page."""

    name: str  # of the picture
    width: int  # in pixels
    height: int  # in pixels; what is below is not in the picture
    dark: bool = False  # whether the reader prefers dark pages


WINDOWS: Final = (
    Window("light", 1280, 1900),
    Window("dark", 1280, 900, dark=True),
    Window("phone", 360, 1200),
)


def find_browser() -> str | None:
    """Return the path of a Chromium; None if there is none."""
    found = (shutil.which(name) for name in NAMES)
    return next((path for path in found if path is not None), None)


def take_pictures(
    browser: str, page: Path, folder: Path, windows: Sequence[Window] = WINDOWS
) -> list[Path]:
    """Write a PNG of a page for each window, called after both; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    pictures = []
    for window in windows:
        picture = folder.resolve() / f"{page.stem}-{window.name}.png"
        said = run_browser(
            browser,
            f"--screenshot={picture}",
            f"--window-size={window.width},{window.height}",
            f"--blink-settings=preferredColorScheme={0 if window.dark else 1}",
            page.resolve().as_uri(),
        )
        if not picture.exists():
            raise OSError(f"{browser} wrote no {picture}: {said.stderr.strip()[-500:]}")
        pictures.append(picture)
    return pictures


def run_browser(browser: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a browser without a window, with a profile of its own, until it is done."""
    # Chromium refuses to be sandboxed for root, as in containers; pages here have no scripts.
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        return subprocess.run(  # noqa: S603 - the browser that is found first, and our arguments
            [
                browser,
                "--headless",
                "--disable-gpu",
                "--hide-scrollbars",
                "--no-first-run",
                f"--user-data-dir={profile}",
                *sandbox,
                *arguments,
            ],
            capture_output=True,
            text=True,
            timeout=MOST_SECONDS,
            check=False,
        )
