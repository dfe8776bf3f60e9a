"""Configuration files: TOML in, frozen and checked values out.

pydantic lives here, at the outer edge, and nowhere else. Every problem becomes a
`ConfigurationError` that names the key and what would be valid.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from protocol.calibration import ERROR_SHARE, PrivacyGoal
from protocol.capacity import WRAP_PROBABILITY
from protocol.errors import ConfigurationError
from protocol.training import TrainingPlan
from secagg import Mode, ParameterError
from sketch.controllers import AdaptNorm, Controller, FixedRate


class Section(BaseModel):
    """A table of a configuration file: immutable, and strict about unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


C = TypeVar("C", bound=Section)

MAX_CONFIG_BYTES = 1 << 14
"""Longest file that is read, many times a real one: reading a dotted key takes time quadratic in
its parts, some seconds for this many bytes."""

MAX_SHOWN = 200
"""Most characters of a wrong value in a message."""


class Privacy(Section):
    """The promise."""

    epsilon: float = Field(gt=0, description="against the server, over all rounds")
    delta: float = Field(gt=0, lt=1)
    clip_l2: float = Field(gt=0, description="bound on an update, in its own units")
    error_share: float = Field(
        default=ERROR_SHARE, gt=0, le=1, description="extra variance over the Gaussian mechanism"
    )
    wrap_probability: float = Field(
        default=WRAP_PROBABILITY, ge=0, description="of a sum that does not fit its field"
    )


class Cohort(Section):
    """Who takes part in a round, and how many may fail or turn."""

    size: int = Field(ge=2)
    tolerated_dropouts: int = Field(ge=0)
    tolerated_colluders: int = Field(ge=0)
    mode: Literal["active", "semi_honest"] = "active"
    exact_noise: bool = Field(default=True, description="take surplus noise off again")


class Sketch(Section):
    """The compression and what tunes it."""

    controller: Literal["adapt_norm", "fixed"] = "adapt_norm"
    rows: int = Field(default=15, ge=1)
    gamma: float = Field(default=0.1, gt=0, description="compression error over noise error")
    window: int = Field(default=3, ge=1, description="rounds averaged by adapt_norm")
    rate: float = Field(default=1.0, ge=1, description="compression of the fixed controller")

    def build(self) -> Controller:
        """The controller that this section describes."""
        if self.controller == "fixed":
            return FixedRate(self.rate, rows=self.rows)
        return AdaptNorm(gamma=self.gamma, window=self.window, rows=self.rows)


def build_plan(privacy: Privacy, cohort: Cohort, rounds: int) -> TrainingPlan:
    """The training plan of a configuration.

    Raises:
        ConfigurationError: the figures do not fit together.
    """
    try:
        return TrainingPlan(
            goal=PrivacyGoal(privacy.epsilon, privacy.delta, rounds),
            cohort=cohort.size,
            tolerated_dropouts=cohort.tolerated_dropouts,
            tolerated_colluders=cohort.tolerated_colluders,
            clip_l2=privacy.clip_l2,
            mode=Mode(cohort.mode),
            exact_noise=cohort.exact_noise,
            error_share=privacy.error_share,
            wrap_probability=privacy.wrap_probability,
        )
    except ParameterError as error:
        raise ConfigurationError(
            f"cohort.{error.argument}", f"value {error.value!r}", error.valid
        ) from None


def load(path: Path, model: type[C]) -> C:
    """Read a TOML file.

    Raises:
        ConfigurationError: the file is missing, too long or no TOML, a key is unknown or missing,
            or a value is out of range.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_CONFIG_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(
            str(path), error.strerror or "unreadable", "a readable file"
        ) from None
    if len(data) > MAX_CONFIG_BYTES:
        raise ConfigurationError(str(path), "too long", f"at most {MAX_CONFIG_BYTES} bytes")
    try:
        raw = tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:
        # Bad UTF-8, bad TOML, numbers of thousands of digits, very deep nesting.
        raise ConfigurationError(str(path), str(error), "a TOML file") from None
    for key, value in _integers(raw):
        if value.bit_length() > 63:
            raise ConfigurationError(key, f"value {_shown(value)}", "an integer of 64 bits")
    return parse(raw, model)


def parse(raw: dict[str, Any], model: type[C]) -> C:
    """Check a configuration that is already in memory; raises as `load` does."""
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            raise ConfigurationError(key, "unknown key", _known_keys(model, first["loc"])) from None
        problem = f"value {_shown(first.get('input'))}"
        raise ConfigurationError(key, problem, first["msg"].lower()) from None


def _integers(raw: dict[str, Any]) -> Iterator[tuple[str, int]]:
    """All integers by key. TOML promises 64 bits; its reader takes more, and its writer fails."""
    # Not recursive: a key may have thousands of parts.
    tables = [("", raw)]
    while tables:
        prefix, table = tables.pop()
        for name, value in table.items():
            if isinstance(value, dict):
                tables.append((f"{prefix}{name}.", value))
            elif isinstance(value, int):
                yield f"{prefix}{name}", value


def _shown(value: object) -> str:
    """A value for a message; some that TOML can hold cannot be printed, or not in one line."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        return f"of type {type(value).__name__}, too large to print"
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


def _known_keys(model: type[BaseModel], location: tuple[int | str, ...]) -> str:
    """The keys of the table that a location is in."""
    for part in location[:-1]:
        annotation = model.model_fields[str(part)].annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            model = annotation
    return ", ".join(sorted(model.model_fields))
