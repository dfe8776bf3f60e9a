"""Functions to send to other processes: they find this folder on their path too."""

from __future__ import annotations

import os

from protocol.errors import ConfigurationError


def square(number: int) -> int:
    return number * number


def process() -> tuple[int, str]:
    return os.getpid(), os.environ.get("LOCAL_WORLD_SIZE", "")


def fails(number: int) -> int:
    raise ConfigurationError("number", f"value {number}", "another")


class StubbornError(Exception):
    """Cannot be rebuilt from what it says."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")


def fails_badly() -> None:
    raise StubbornError(1, 2)


def lambda_maker() -> object:
    return lambda: None
