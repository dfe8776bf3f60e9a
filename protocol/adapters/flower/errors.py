"""What can go wrong between Flower and a private round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from protocol.errors import ConfigurationError
from secagg import LocalProtocolError, TooFewSurvivorsError

MOST_REASONS = 8
"""Different reasons that are told in words."""
MOST_NODES = 5
"""Nodes that are named with one reason; the others are counted."""


def by_reason(reasons: Mapping[int, str]) -> str:
    """Reasons by node, for the end of a message: nodes with the same reason are told together."""
    nodes: dict[str, list[int]] = {}
    for node, reason in reasons.items():
        nodes.setdefault(reason, []).append(node)
    parts = [f"; {_names(each)} {reason}" for reason, each in list(nodes.items())[:MOST_REASONS]]
    more = sum(map(len, list(nodes.values())[MOST_REASONS:]))
    return "".join(parts) + (f"; and {more} more, for other reasons" if more else "")


def _names(nodes: Sequence[int]) -> str:
    named, more = ", ".join(map(str, nodes[:MOST_NODES])), len(nodes) - MOST_NODES
    return f"node{'s' * (len(nodes) > 1)} {named}" + (f" and {more} more" if more > 0 else "") + ":"


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
        text = "\n".join(map(str, self.problems))
        remedy = f"\nThis would do, in the app's pyproject.toml:\n\n{self.table}\n"
        return text + (remedy if self.table else "")


class StrategyError(ValueError):
    """A strategy, or the messages it makes, cannot work with one mean; says what can."""


class RoundLostError(TooFewSurvivorsError):
    """Too few nodes stayed in a round; says of each that left at which stage it did, and why.

    Attributes:
        lost: why, by node; beginning with the stage unless it never said who it is.
        away: registered clients that the round was made for too, without a node.
    """

    def __init__(
        self, stage: str, survivors: int, needed: int, lost: Mapping[int, str], away: int
    ) -> None:
        super().__init__(stage, survivors, needed)
        self.lost = dict(lost)
        self.away = away

    def __str__(self) -> str:
        missing = f"; {self.away} of its cohort had no node" if self.away else ""
        return super().__str__() + missing + by_reason(self.lost)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.stage, self.survivors, self.needed, self.lost, self.away)


class TooFewNodesError(RuntimeError):
    """Too few nodes are connected, or have a registered identity, after a bounded wait."""


class AmbiguousMessageError(LocalProtocolError):
    """A message that training would see holds no model, or several."""
