"""What a site says of the apps that may train: `site.toml` beside the policy in its folder."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field

from protocol.checks import POSITIVE
from protocol.errors import ConfigurationError
from protocol.planning.configuration import Section, load, within

SITE: Final = "site.toml"
SETTLING: Final = 1.0
"""Seconds in which a training's process is dead after its time is over."""


class SiteRules(Section):
    """Which apps may train here, how, and for how long."""

    approved_apps: list[Annotated[str, Field(pattern="^[0-9a-f]{64}$")]] = Field(
        description="SHA-256 of the app files (FAB) whose code may train; that of any other run is "
        "refused before it is unpacked"
    )
    trainer: list[str] = Field(
        default=[],
        description="command that starts the training's process in its sandbox, which gets the app "
        "and the model on standard input; this Python, as this user, if left out",
    )
    sandbox: str | None = Field(
        default=None,
        description="in place of a trainer: path of the socket of a sandbox, as `veilsum site "
        "units` makes one, which starts the training's process for whoever connects",
    )
    training_seconds: Annotated[float, within(POSITIVE)] = Field(
        default=480.0, description="training that takes longer is ended, and counts as zeros"
    )
    answer_after_seconds: Annotated[float, within(POSITIVE)] = Field(
        default=500.0,
        description="after the model came, at which moment the masked update is sent, however long "
        "training took; below what the server waits for",
    )
    noise_after_seconds: Annotated[float, within(POSITIVE)] = Field(
        default=20.0,
        description="the same of a member's noise, after it was asked for: some values take longer "
        "to draw than others. At most half of what the server waits for in a short stage",
    )


def read_rules(home: Path) -> SiteRules:
    """The rules in a site's folder; raises `ConfigurationError` if there are none that work."""
    rules = load(home / SITE, SiteRules)
    least = rules.training_seconds + SETTLING + 1.0
    if rules.answer_after_seconds < least:
        valid = f"at least {least:g}, two seconds above training_seconds: encoding takes time"
        raise ConfigurationError(
            "answer_after_seconds", f"value {rules.answer_after_seconds:g}", valid
        )
    if rules.sandbox is not None and (rules.trainer or not Path(rules.sandbox).is_absolute()):
        valid = "the absolute path of a socket, and no trainer beside it"
        raise ConfigurationError("sandbox", f"value {rules.sandbox!r}", valid)
    if rules.trainer and shutil.which(rules.trainer[0]) is None:
        valid = "a program of this machine, with its path if it is not on PATH"
        raise ConfigurationError("trainer", f"no program {rules.trainer[0]!r}", valid)
    return rules
