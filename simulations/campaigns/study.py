"""Runs the cells of a campaign: what is in the store is read, the rest is made and kept."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, as_completed
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from rich.console import Console
from rich.progress import Progress

from simulations.campaigns.seeds import evaluated
from simulations.campaigns.store import Cell, Result, Store, plain

if TYPE_CHECKING:
    from simulations.learning.data import Dataset

A = TypeVar("A")
P = TypeVar("P")


class _Here(threading.local):
    """Where this thread finds data, and where cells may keep folders of their own."""

    data_dir: Path | None = None
    folder: Path | None = None


_HERE = _Here()


def enter(data_dir: Path | None, folder: Path | None) -> None:
    """Tell this thread where things are; the results of cells do not depend on it."""
    _HERE.data_dir, _HERE.folder = data_dir, folder


def folder_here() -> Path | None:
    """Return the folder of the campaign's output; None outside of a campaign."""
    return _HERE.folder


def data_dir_here() -> Path | None:
    """Return the folder of data sets; None for what the environment says."""
    return _HERE.data_dir


def dataset(name: str, **options: Any) -> Dataset:
    """Return a data set by its name, read once by each process."""
    return _loaded(name, _HERE.data_dir, tuple(options.items()))


@cache
def _loaded(name: str, data_dir: Path | None, options: tuple[tuple[str, Any], ...]) -> Dataset:
    from simulations.learning.data import load_dataset

    return load_dataset(name, data_dir, **dict(options))


def _made_elsewhere(cell: Cell, data_dir: Path | None, folder: Path | None) -> Result:
    """Make a cell where nobody knows yet where things are."""
    enter(data_dir, folder)
    return _made(cell)


def _made(cell: Cell) -> Result:
    start = time.process_time()
    value = plain(cell.make(*cell.given))
    return Result(value, time.process_time() - start)


class Study(Generic[P]):
    """A campaign under way: what was finished in its folder is used.

    The executor makes several cells at a time; without one they are made here, one after another.
    What people should know is told to `tell`.
    """

    def __init__(
        self,
        plan: P,
        folder: Path,
        *,
        seed: int = 1,
        seeds: int = 1,
        data_dir: Path | None = None,
        executor: Executor | None = None,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        self.plan, self.folder, self.data_dir = plan, folder, data_dir
        self.seed, self.seeds = seed, evaluated(seed, seeds)
        self.seconds = 0.0
        self.found = self.made = 0
        self._tell, self._stack = tell, ExitStack()
        self._store = self._stack.enter_context(Store(folder))
        self._executor = executor
        enter(data_dir, folder)

    def __enter__(self) -> Self:
        self._progress = Progress(console=Console(stderr=True), disable=self._tell is None)
        self._stack.enter_context(self._progress)
        self._bar = self._progress.add_task("", total=0)
        return self

    def __exit__(self, *details: object) -> None:
        self._stack.close()
        enter(None, None)

    def results(self, cells: Iterable[Cell]) -> list[Any]:
        """Return the results of cells, in their order; one that is asked for twice is made once."""
        asked = list(cells)
        known = {cell.key: found for cell in asked if (found := self._store.find(cell))}
        missing = {cell.key: cell for cell in asked if cell.key not in known}
        self._announce(len(known), list(missing.values()))
        for cell, result in self._run(list(missing.values())):
            self._store.keep(cell, result)
            known[cell.key] = result
            self._progress.update(self._bar, advance=1, description=cell.name)
        self.seconds += sum(result.seconds for result in known.values())
        return [known[cell.key].value for cell in asked]

    def by_arm(self, arms: Iterable[A], cell: Callable[[A, int], Cell]) -> list[list[Any]]:
        """Return the results of each arm, one for each seed; they are run seed by seed."""
        listed = list(arms)
        found = self.results([cell(arm, seed) for seed in self.seeds for arm in listed])
        return [found[place :: len(listed)] for place in range(len(listed))]

    def _announce(self, found: int, missing: Sequence[Cell]) -> None:
        total = self.found + self.made + found + len(missing)
        self.found, self.made = self.found + found, self.made + len(missing)
        self._progress.update(self._bar, advance=found, total=total)
        outdated = sum(map(self._store.outdated, missing))
        if outdated and self._tell:
            self._tell(
                f"{outdated} results in {self._store.path} are of other source code and are made "
                f"anew, {missing[0].name} first"
            )

    def _run(self, cells: Sequence[Cell]) -> Iterator[tuple[Cell, Result]]:
        """Make cells, here or in processes of their own, and yield them as they are ready."""
        if self._executor is None:
            for cell in cells:
                yield cell, _made(cell)
            return
        where = (self.data_dir and self.data_dir.resolve(), self.folder.resolve())
        futures = {self._executor.submit(_made_elsewhere, cell, *where): cell for cell in cells}
        failed: BaseException | None = None
        for future in as_completed(futures):
            if future.cancelled():
                continue
            error = future.exception()
            if error is None:
                yield futures[future], future.result()
            elif failed is None:
                # What runs is kept when it ends; what has not begun is not begun any more.
                failed = error
                for other in futures:
                    other.cancel()
        if failed is not None:
            raise failed

    def facts(self) -> dict[str, Any]:
        """Return what all figures begin with."""
        return {"seed": self.seed, "plan": plain(self.plan)}
