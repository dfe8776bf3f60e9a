"""What is said when a run is over: the verdict on its settings, and what its epsilon means."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from simulations.learning.configuration import RunConfig
from simulations.learning.records import Record
from simulations.reports.guessing import meaning
from simulations.reports.verdict import judge


def show_outcome(console: Console, config: RunConfig, records: Sequence[Record]) -> None:
    """Print the verdict on a run with its reasons, and its guarantee in words."""
    if not records:
        return
    verdict = judge(config, records)
    console.print(Text(f"Verdict: {verdict.line}", style="bold"))
    for finding in verdict.findings:
        console.print(_indented(finding.said, 2))
        console.print(_indented(f"What to change: {finding.change}", 4))
    for sentence in verdict.rest:
        console.print(_indented(sentence, 2))
    if text := meaning(config, records[-1]["epsilons"]):
        console.print(Text(text))


def _indented(words: str, columns: int) -> Padding:
    return Padding(Text(words), (0, 0, 0, columns))
