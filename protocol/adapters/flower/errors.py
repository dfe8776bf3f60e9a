"""What can go wrong between Flower and a private round."""

from __future__ import annotations

from collections.abc import Sequence

from protocol.errors import ConfigurationError
from secagg import LocalProtocolError


class SettingsError(ConfigurationError):
    """Everything that is wrong with a run's settings, and a table that would do.

    Attributes:
        problems: all of them; this error's own key is the first one's.
        table: TOML for the app's pyproject.toml; empty if the settings are not what is wrong.
    """

    def __init__(self, problems: Sequence[ConfigurationError], table: str = "") -> None:
        first = problems[0]
        super().__init__(first.key, first.problem, first.valid)
        self.problems = tuple(problems)
        self.table = table

    def __str__(self) -> str:
        told = "\n".join(map(str, self.problems))
        cure = f"\nThis would do, in the app's pyproject.toml:\n\n{self.table}\n"
        return told + (cure if self.table else "")


class StrategyError(ValueError):
    """A strategy, or the messages it makes, cannot work with one mean; says what can."""


class TooFewNodesError(RuntimeError):
    """Too few nodes are connected, or have a registered identity, after a bounded wait."""


class TrainingFailedError(LocalProtocolError):
    """The app's own training function raised, or answered with something that is no model.

    Flower would send the exception's words to the server; they may depend on the data.
    """


class AmbiguousMessageError(LocalProtocolError):
    """A message that training would see holds no model, or several."""
