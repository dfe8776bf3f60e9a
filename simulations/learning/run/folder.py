"""The folder of a run: everything needed to understand it, and to go on after a crash.

config.toml       the configuration, as checked
environment.json  versions, machine, commit
rounds.jsonl      one line for each finished round
checkpoint.npz    where the run stands
ledger.jsonl      what was released; private runs only
memory-N.rows     what clients remember, as far as the checkpoint says; local privacy only
trackers.json     what trackers call the run; with --log only
secrets.key       all secrets of the run; deleted when it is over
summary.json      when it is over
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any, Final, Self

from protocol.errors import ConfigurationError
from protocol.planning.configuration import IndependentTable, load
from simulations.common.files import append_durably, write_whole
from simulations.common.provenance import provenance
from simulations.learning.configuration import RunConfig, write_config
from simulations.learning.local_dp.journal import PATTERN
from simulations.learning.records import Record, RunSummary, flat

ENVIRONMENT: Final = "environment.json"
ROUNDS: Final = "rounds.jsonl"


class RunFolder:
    """An open folder, locked for this process.

    Args:
        path: made if it does not exist.
        config: of the run; the folder must be new, or of this very configuration.

    Raises:
        ConfigurationError: the folder belongs to another configuration, is in use, or has lost the
            identities that its ledger counts.
    """

    def __init__(self, path: Path, config: RunConfig) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(path / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            self._take()
            self._claim(config)
        except BaseException:
            self.close()
            raise

    @property
    def rounds(self) -> Path:
        """The record of rounds."""
        return self.path / ROUNDS

    @property
    def checkpoint(self) -> Path:
        """Where the run stands."""
        return self.path / "checkpoint.npz"

    @property
    def ledger(self) -> Path:
        """What was released."""
        return self.path / "ledger.jsonl"

    @property
    def key(self) -> Path:
        """All secrets of the run."""
        return self.path / "secrets.key"

    @property
    def summary(self) -> Path:
        """The end of the run."""
        return self.path / "summary.json"

    def state(self) -> list[Path]:
        """The files that a run goes on from; those that are there."""
        files = (self.key, self.ledger, self.checkpoint, *self.path.glob(PATTERN))
        return [path for path in files if path.exists()]

    def records(self) -> list[Record]:
        """All finished rounds."""
        return read_rounds(self.path)

    def restore(self, last: Record | None) -> list[Record]:
        """Bring the record of rounds up to the checkpoint's, and return it.

        Args:
            last: the record in the checkpoint; None if there is no checkpoint.
        """
        until = 0 if last is None else last["round"]
        kept = [record for record in self.records() if record["round"] <= until]
        if last is not None and (not kept or kept[-1]["round"] < until):
            kept.append(last)
        write_whole(self.rounds, b"".join(_line(record) for record in kept))
        return kept

    def append(self, record: Record) -> None:
        """Add a finished round, durably."""
        append_durably(self.rounds, _line(record))

    def close(self) -> None:
        """Let others use the folder. Closing twice is allowed."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()

    def _take(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            valid = "wait"
            raise ConfigurationError(str(self.path), "in use by another process", valid) from None

    def _claim(self, config: RunConfig) -> None:
        path = self.path / "config.toml"
        if not path.exists():
            # What the lines below leave, if the disk was full between them, is no stranger.
            ours = (".", ENVIRONMENT, path.name)
            strangers = sorted(p.name for p in self.path.iterdir() if not p.name.startswith(ours))
            if strangers:
                raise ConfigurationError(
                    str(self.path), f"holds {strangers[0]} and no config.toml", "an empty folder"
                )
            write_environment(self.path)
            write_config(config, path)
            return
        begun, given = load(path, RunConfig), config.engine.insecure_seed
        if begun.engine.insecure_seed != given:
            raise other_seed(given, begun.engine.insecure_seed)
        there, here = _resolved(begun), _resolved(config)
        if there != here:
            raise ConfigurationError(
                str(self.path),
                f"made with another configuration ({_differences(there, here)})",
                "another folder (--out), or the values that it was made with",
            )
        if self.key.exists():
            self._require_home()
        elif given is None and self.ledger.exists() and not self.summary.exists():
            raise ConfigurationError(
                str(self.path),
                f"holds a ledger and no {self.key.name}: its clients' identities are lost, and new "
                "ones would begin with nothing spent",
                f"the {self.key.name} that it was begun with, or another --out",
            )

    def _require_home(self) -> None:
        """See that an unfinished run goes on where its numbers stay the same.

        The round that it was interrupted in may have been charged, and its sum seen. It is run
        again with the same noise; were its updates others, both sums together would tell more than
        was charged.
        """
        try:
            then = _home(json.loads((self.path / ENVIRONMENT).read_bytes()))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            valid = f"the {ENVIRONMENT} that it was begun with, or another --out"
            raise ConfigurationError(str(self.path), f"no readable {ENVIRONMENT}", valid) from None
        for name, now in _home(_environment()).items():
            if then.get(name) != now:
                raise ConfigurationError(
                    str(self.path),
                    f"begun with {name} {then.get(name)}, and here it is {now}: a round that was "
                    "charged could be released again with other values",
                    "to finish it where it was begun, or another --out",
                )


def read_rounds(path: Path) -> list[Record]:
    """All finished rounds of the run in a folder, which need not be open.

    An unfinished last line, if the machine stopped, is not one.
    """
    rounds = path / ROUNDS
    if not rounds.exists():
        return []
    *lines, _ = rounds.read_bytes().split(b"\n")
    return [json.loads(line) for line in lines]


def finished(path: Path, config: RunConfig) -> RunSummary | None:
    """The summary of a run that is over; None if it is not."""
    if not (path / "summary.json").exists():
        return None
    with RunFolder(path, config) as folder:
        # All that a run killed at its very end may have left to do.
        folder.key.unlink(missing_ok=True)
        summary: RunSummary = json.loads(folder.summary.read_text())
    return summary


def other_seed(given: int | None, begun: int | None) -> ConfigurationError:
    """Why a run cannot be continued: half of it would repeat and half would not."""
    return ConfigurationError(
        "engine.insecure_seed",
        f"{_named(given)} for a run that was begun with {_named(begun)}",
        f"{_named(begun)}, or another --out",
    )


def _named(seed: int | None) -> str:
    return "none" if seed is None else f"value {seed}"


def _resolved(config: RunConfig) -> RunConfig:
    """The configuration with its surplus noise taken off or not, as it says or leaves open."""
    if not isinstance(config.noise, IndependentTable) or config.noise.exact is not None:
        return config
    exact = config.noise.mechanism == "binomial"
    noise = config.noise.model_copy(update={"exact": exact})
    return config.model_copy(update={"noise": noise})


def _differences(begun: RunConfig, given: RunConfig) -> str:
    """The keys whose values are not the same, with both values."""
    there, here = (flat(config.model_dump(exclude_none=True)) for config in (begun, given))
    none = "left out"
    pairs = ((key, there.get(key, none), here.get(key, none)) for key in {**there, **here})
    return "; ".join(f"{key}: {old} there, {new} here" for key, old, new in pairs if old != new)


def _line(record: Record) -> bytes:
    return json.dumps(record).encode() + b"\n"


def _home(environment: dict[str, Any]) -> dict[str, str]:
    """Of what runs somewhere, that which the numbers of a run may depend on."""
    packages = {name: str(version) for name, version in environment["packages"].items()}
    return {"processor": environment["processor"], "python": environment["python"], **packages}


def write_environment(folder: Path) -> None:
    """Write what runs here, as JSON, into a run's folder."""
    write_whole(folder / ENVIRONMENT, json.dumps(_environment(), indent=1).encode() + b"\n")


def _environment() -> dict[str, Any]:
    """What runs here."""
    made = provenance()
    packages = dict(made.versions)
    return {
        "python": packages.pop("python"),
        **made.machine,
        "packages": packages,
        "commit": made.commit,
        "source": made.source,
    }
