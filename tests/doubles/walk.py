"""Walks pages as they are written, in an environment made for it, and times each step.

Run with: make walk

The README and the tutorial are followed word by word, each in a new clone, as what is compiled once
is kept there: every command is typed into one shell, and all Python of a page into one interpreter.
Blocks that the test suite does not run are run, too. A step that fails ends its page; one that only
lacks a network to fetch from is said to, and is no failure. The table
goes to standard output, progress and what failing steps print to standard error; the exit status is
1 if a step failed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pages import ROOT, Block, blocks

WALK: Final = (
    "README.md",
    "docs/tutorial/1-demo.md",
    "docs/tutorial/2-your-own-vectors.md",
    "docs/tutorial/3-flower.md",
)
LANGUAGES: Final = ("python", "toml", "console")
INSTALL: Final = "pip install -e ."
"""What the README says in a sentence, before its block of Python."""
NEEDS_TORCH: Final = "docs/tutorial/1-demo.md"
AGAIN: Final = "its Python again"
MARK: Final = "-- walked --"
FETCHES: Final = "it fetches"  # begins the reason why the test suite does not run a block
NO_NETWORK: Final = re.compile("unable to connect|could not resolve", re.IGNORECASE)
OFFLINE: Final = "no network: its page ends here"
INTERPRETER: Final = f"""
import json, sys
names = {{"__name__": "walked"}}
for line in sys.stdin:
    page, text = json.loads(line)
    exec(compile(text, page, "exec", dont_inherit=True), names)
    print("\\n{MARK}", flush=True)
"""
SHOWN: Final = 64
"""Most characters of a step in the table."""


@dataclass(frozen=True, slots=True)
class Step:
    """Something that was done: where it is written, what, for how long, and how it ended."""

    page: str
    what: str
    seconds: float  # 0 for what was not run
    outcome: str  # `ok`, `failed`, or why it was not run


class Session:
    """A program that is told one thing after another, and says when each is done."""

    def __init__(
        self, command: Sequence[str], folder: Path, environment: Mapping[str, str]
    ) -> None:
        self._process = subprocess.Popen(  # noqa: S603
            command,
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def tell(self, text: str) -> tuple[bool, str]:
        """Whether it came to its end, and what it printed."""
        if self._process.stdin is None or self._process.stdout is None:
            raise TypeError("no pipes")
        self._process.stdin.write(text)
        self._process.stdin.flush()
        printed = []
        for line in self._process.stdout:
            if line.rstrip("\n") == MARK:
                return True, "".join(printed)
            printed.append(line)
        return False, "".join(printed)

    def close(self) -> None:
        """End the program, which has nothing more to read."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


@dataclass
class Walk:
    """Steps in one folder with one environment."""

    folder: Path  # a copy of the repository
    environment: Mapping[str, str]  # variables of all programs
    skipped: Sequence[str] = ()  # commands that contain one of these are not run
    steps: list[Step] = field(default_factory=list)

    def follow(self, page: str, *languages: str) -> None:
        """All steps of a page in order, in a shell and an interpreter of its own."""
        shell = Session(["bash", "-e"], self.folder, self.environment)
        python: Session | None = None
        try:
            for name, block, what in self._written(page, languages or LANGUAGES):
                if any(word in what for word in self.skipped):
                    self.steps.append(Step(page, what, 0.0, "left out on request"))
                elif name == "file":
                    path = self.folder / what
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(block.text)
                elif name == "console":
                    if not self._timed(page, what, shell, typed(what), block.reason):
                        return
                else:
                    start = python is None
                    python = python or self.interpreter()
                    told = json.dumps([page, "\n" * block.line + block.text]) + "\n"
                    words = f"Python, line {block.line + 1}" + (", a new interpreter" * start)
                    if not self._timed(page, words, python, told):
                        return
        finally:
            shell.close()
            if python is not None:
                python.close()

    def interpreter(self) -> Session:
        """The environment's Python."""
        return Session(["python", "-c", INTERPRETER], self.folder, self.environment)

    def do(self, page: str, what: str, command: str) -> bool:
        """One step that is no block of a page."""
        shell = Session(["bash", "-e"], self.folder, self.environment)
        try:
            return self._timed(page, what, shell, typed(command))
        finally:
            shell.close()

    def _written(self, page: str, languages: Sequence[str]) -> Iterator[tuple[str, Block, str]]:
        for block in blocks(self.folder / page, *languages):
            if block.file:
                yield "file", block, block.file
            elif block.language == "console":
                yield from (("console", block, line) for line in block.lines)
            elif block.language == "python":
                yield "python", block, ""

    def _timed(self, page: str, what: str, session: Session, told: str, reason: str = "") -> bool:
        print(f"{page}: {what}", file=sys.stderr, flush=True)
        start = time.perf_counter()
        done, printed = session.tell(told)
        seconds = time.perf_counter() - start
        offline = reason.startswith(FETCHES) and NO_NETWORK.search(printed)
        outcome = "ok" if done else OFFLINE if offline else "failed"
        self.steps.append(Step(page, what, seconds, outcome))
        if not done:
            print(printed, file=sys.stderr, flush=True)
        return done


def typed(command: str) -> str:
    """A command for a shell that says when it is done; it reads nothing meant for the shell."""
    return f"{{ {command}\n}} </dev/null\necho\necho '{MARK}'\n"


def table(steps: Sequence[Step]) -> str:
    """The steps as Markdown."""
    rows = ["| page | step | seconds | outcome |", "|---|---|---|---|"]
    for step in steps:
        what = step.what.partition("  #")[0].replace("|", "\\|").strip()
        short = what if len(what) <= SHOWN else f"{what[: SHOWN - 3]}..."
        seconds = f"{step.seconds:.1f}" if step.outcome in ("ok", "failed") else ""
        rows.append(f"| {step.page} | `{short}` | {seconds} | {step.outcome} |")
    return "\n".join(rows)


def walk(folder: Path, torch: str, skipped: Sequence[str], pages: Sequence[str]) -> list[Step]:
    """Make the environment and follow the pages."""
    environment = folder / "environment"
    start = time.perf_counter()
    venv.create(environment, with_pip=True)
    steps = [Step("", "python3 -m venv", time.perf_counter() - start, "ok")]

    def begun(name: str) -> Walk:
        clone = folder / name
        command = ["git", "clone", "--quiet", str(ROOT), str(clone)]
        subprocess.run(command, check=True)  # noqa: S603
        return Walk(clone, variables(environment), skipped, steps)

    for page in pages:
        if page == "README.md":
            library = begun("library")
            library.do(page, INSTALL, INSTALL)
            library.follow(page, "python")
            library.do(page, AGAIN, "python examples/private_mean.py")
            begun("made").follow(page, "console")
        else:
            found = begun(Path(page).stem)
            if page == NEEDS_TORCH and torch:
                found.do(page, f"pip install {torch}", f"pip install {shlex.quote(torch)}")
            found.follow(page)
    return steps


def variables(environment: Path) -> dict[str, str]:
    """Those of an activated environment that knows nothing of this one, and of no cache."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "NUMBA"))}
    return {
        **kept,
        "VIRTUAL_ENV": str(environment),
        "PATH": os.pathsep.join([str(environment / "bin"), os.environ["PATH"]]),
        "PIP_NO_CACHE_DIR": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }


def headline(steps: Sequence[Step]) -> str:
    """From `pip install` to the first example's output, and the example a second time."""
    own = [step for step in steps if step.page == "README.md" and step.outcome == "ok"]
    install = sum(step.seconds for step in own if step.what == INSTALL)
    first = sum(step.seconds for step in own if step.what.startswith("Python"))
    again = sum(step.seconds for step in own if step.what == AGAIN)
    return (
        f"From `{INSTALL}` to the first example's output: {install + first:.1f} s "
        f"({install:.1f} s to install, {first:.1f} s to run; {again:.1f} s when run again)."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Walk, print, and say whether all went well."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--torch", default="", help="requirement to install before torch is needed")
    parser.add_argument("--skip", action="append", default=[], help="commands to leave out")
    parser.add_argument("--page", action="append", choices=WALK, help="only these pages")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="veilsum-walk-") as folder:
        steps = walk(Path(folder), given.torch, given.skip, given.page or WALK)
    print(table(steps))
    if not given.page or "README.md" in given.page:
        print(f"\n{headline(steps)}")
    return int(any(step.outcome == "failed" for step in steps))


if __name__ == "__main__":
    sys.exit(main())
