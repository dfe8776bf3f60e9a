"""Where a run stands, in one file that is always whole.

A checkpoint is written beside the old one, flushed, and renamed over it: whenever the machine
stops, one of the two is there. It holds the last round's record too, so that a record can neither
be lost nor written twice.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from protocol.errors import ConfigurationError
from protocol.training.private import TrainingState
from simulations.common.files import write_whole
from simulations.learning.records import Record
from simulations.learning.server_optimizer import ModelState
from simulations.learning.sources import Arrays
from sketch import SketchSpec
from sketch.controllers import Decision, Rationale
from sketch.controllers.base import ControllerState

FORMAT = 5

_PREFIX = "source/"


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """A run after some rounds."""

    number: int  # rounds finished
    state: ModelState  # the model and its optimiser
    training: TrainingState | None  # of the protocol; None in a plain run
    record: Record  # of the last round, as it stands in the record of rounds
    # what the source of means remembers beside that, by name
    arrays: Arrays = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Replace the checkpoint in a file."""
        public = {
            "format": FORMAT,
            "number": self.number,
            "training": None if self.training is None else _plain(self.training),
            "record": self.record,
            "averaged": self.state.averaged,
        }
        arrays: dict[str, Any] = {
            "model": self.state.model,
            "velocity": self.state.velocity,
            "squares": self.state.squares,
            "average": _or_empty(self.state.average),
            "previous": _or_empty(None if self.training is None else self.training.previous),
            "public": np.frombuffer(json.dumps(public).encode(), np.uint8),
        }
        arrays |= {_PREFIX + name: array for name, array in self.arrays.items()}
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)
        write_whole(path, buffer.getvalue())

    @classmethod
    def load(cls, path: Path) -> Checkpoint | None:
        """The checkpoint in a file; None if there is no file."""
        if not path.exists():
            return None
        try:
            # From memory: NumPy would leave a damaged file open.
            with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as arrays:
                public = json.loads(arrays["public"].tobytes())
                if public["format"] != FORMAT:
                    raise ValueError(f"format {public['format']}, not {FORMAT}")
                state = ModelState(
                    arrays["model"],
                    arrays["velocity"],
                    arrays["squares"],
                    _or_none(arrays["average"]),
                    int(public["averaged"]),
                )
                previous = _or_none(arrays["previous"])
                kept = {
                    name.removeprefix(_PREFIX): arrays[name]
                    for name in arrays.files
                    if name.startswith(_PREFIX)
                }
            training = public["training"]
            return cls(
                number=int(public["number"]),
                state=state,
                training=None if training is None else _training(training, previous),
                record=public["record"],
                arrays=kept,
            )
        except (OSError, EOFError, ValueError, KeyError, TypeError, BadZipFile) as error:
            raise ConfigurationError(
                str(path),
                f"damaged ({error})",
                "a checkpoint; start the run again in another folder",
            ) from None


def _or_empty(array: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """What a file has for an array that may not be there."""
    return np.empty(0) if array is None else array


def _or_none(array: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """The same read back."""
    return array if array.size else None


def _plain(training: TrainingState) -> dict[str, Any]:
    decision = training.decision
    return {
        "session_id": training.session_id.hex(),
        "number": training.number,
        "attempts": training.attempts,
        "controller": asdict(decision.state),
        "spec": decision.spec.encode_bytes().hex(),
        "words": decision.rationale.words,
        "numbers": dict(decision.rationale.numbers),
    }


def _training(plain: Mapping[str, Any], previous: NDArray[np.float64] | None) -> TrainingState:
    remembered = plain["controller"]
    return TrainingState(
        session_id=bytes.fromhex(plain["session_id"]),
        number=plain["number"],
        attempts=plain["attempts"],
        decision=Decision(
            ControllerState(**{**remembered, "memory": tuple(remembered["memory"])}),
            SketchSpec.decode_bytes(bytes.fromhex(plain["spec"])),
            Rationale(plain["words"], plain["numbers"]),
        ),
        previous=previous,
    )
