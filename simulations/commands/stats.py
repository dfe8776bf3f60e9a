"""`veilsum stats`: private statistics of a table's clients, from a file of questions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from pydantic import Field
from rich.console import Console

from protocol.planning.configuration import Section, load, within
from simulations.common.tables import JsonFlag, show_rows
from veilsum.extras import install_command

if TYPE_CHECKING:
    from protocol.statistics.answers import Answer
    from protocol.statistics.private import PlannedSurvey

stats_app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    help="Private statistics of clients: what to expect, the answers, and pictures of them.",
)

File = Annotated[Path, typer.Argument(help="TOML file: data, epsilon, a [[question]] for each.")]
HEADS = ("question", "part", "label", "value", "standard error", "95 % interval")


class StatsFile(Section):
    """What is asked of whom."""

    data: str = Field(description="CSV or parquet file, from the folder of this file")
    client: str | None = Field(None, description="column that names the client; else rows are")
    epsilon: float = Field(description="of the promise, over all rounds of the goal")
    delta: float = Field(1e-6, description="of that guarantee")
    rounds: int = Field(1, ge=1, description="of the goal: surveys and training on the ledger")
    share: float | None = Field(None, description="of the goal; 1 / rounds if left out")
    ledger: str | None = Field(None, description="file that counts what is released, if kept")
    weight: Literal["client", "record"] = "client"
    max_records: int = Field(1, ge=1, description="of a client that count")
    importance: dict[str, float] = Field(default_factory=dict)
    tolerated_dropouts: int | None = Field(None, ge=0, description="a tenth if left out")
    tolerated_colluders: int | None = Field(None, ge=0, description="a twentieth if left out")
    scheme: Literal["pairwise", "one-shot", "validated"] = "pairwise"
    mechanism: Literal["binomial", "skellam", "discrete-gaussian"] = "binomial"
    cryptography: bool = Field(True, description="false leaves out what changes no sum")
    error_share: Annotated[float, within("error_share")] = 0.01
    question: list[dict[str, Any]] = Field(min_length=1, description="kind, name and the rest")


def _planned(path: Path) -> tuple[StatsFile, dict[str, dict[str, list[Any]]], PlannedSurvey]:
    """The file, the clients, and the survey with its plan."""
    from protocol import Independent, PrivacyGoal, TrainingPlan
    from protocol.errors import ConfigurationError
    from protocol.schemes import SCHEMES
    from protocol.statistics.private import PlannedSurvey
    from protocol.statistics.survey import Survey, question_of
    from secagg import ParameterError
    from simulations.common.client_tables import clients_of, read_table

    file = load(path, StatsFile)
    table = read_table(path.parent / file.data)
    clients = clients_of(table, file.client)
    count = len(clients)
    lost, corrupt = file.tolerated_dropouts, file.tolerated_colluders
    try:
        questions = tuple(question_of(each) for each in file.question)
        survey = Survey(questions=questions, weight=file.weight, max_records=file.max_records)
        survey.check_columns(table)
        plan = TrainingPlan(
            goal=PrivacyGoal(file.epsilon, file.delta, file.rounds),
            cohort=count,
            tolerated_dropouts=count // 10 if lost is None else lost,
            tolerated_colluders=count // 20 if corrupt is None else corrupt,
            clip_l2=1.0,
            noise=Independent(mechanism=file.mechanism),
            scheme=SCHEMES[file.scheme](),
            error_share=file.error_share,
        )
        return (
            file,
            clients,
            PlannedSurvey.of(survey, plan, share=file.share, importance=file.importance),
        )
    except ParameterError as error:
        raise ConfigurationError(error.argument, str(error.value), str(error.valid)) from None


def _lines(answers: Sequence[Answer], *, errors_alone: bool) -> Iterator[list[str]]:
    for answer in answers:
        for row in answer.rows():
            value = "" if errors_alone else f"{row['value']:.6g}"
            ends = "" if errors_alone else f"{row['low']:.6g} .. {row['high']:.6g}"
            error = f"{row['standard_error']:.3g}"
            yield [row["question"], row["part"], row["label"], value, error, ends]


def _say(title: str, lines: Iterator[list[str]]) -> None:
    rows = list(lines)
    # A column that nobody fills says nothing.
    kept = [at for at in range(len(HEADS)) if any(row[at] for row in rows)]
    show_rows(title, [HEADS[at] for at in kept], [[row[at] for at in kept] for row in rows])


@stats_app.command("plan")
def plan_command(file: File, as_json: JsonFlag = False) -> None:
    """Say every error and what it costs, before anybody is asked.

    Errors of shares, means and quantiles depend on the answers; they are told as for clients who
    are spread evenly.
    """
    asked, clients, planned = _planned(file)
    answers = planned.predicted()
    figures = {
        "clients": len(clients),
        "epsilon": asked.epsilon,
        "delta": asked.delta,
        "epsilon_of_round": planned.goal.epsilon,
        "numbers": planned.survey.length,
        "weights": dict(
            zip((q.name for q in planned.survey.questions), planned.survey.weights, strict=True)
        ),
    }
    if as_json:
        rows = [row for answer in answers for row in answer.rows()]
        typer.echo(json.dumps({**figures, "rows": rows}))
        return
    show_rows("the round", ("figure", "value"), [(k, str(v)) for k, v in figures.items()])
    _say("errors to expect", _lines(answers, errors_alone=True))


@stats_app.command("run")
def run_command(
    file: File,
    out: Annotated[
        Path | None, typer.Option(help="File of the answers; FILE with .json if left out.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Ask the clients of a table, all of them in this process, and write the answers."""
    from protocol.statistics.local import LocalSurveys
    from protocol.training.local import named_identities
    from simulations.common.files import write_whole

    asked, clients, planned = _planned(file)
    session = LocalSurveys(
        planned.plan,
        named_identities(list(clients)),
        list(clients.values()),
        ledger=None if asked.ledger is None else file.parent / asked.ledger,
        cryptography=asked.cryptography,
    )
    answers = session.run(planned)
    cost = session.cost
    written = {
        "answers": [answer.to_dict() for answer in answers],
        "epsilon": cost.epsilon,
        "delta": cost.delta,
        "spent": cost.spent,
        "survivors": cost.survivors,
        "bytes_sent": cost.bytes_sent,
    }
    text = json.dumps(written)
    path = out or file.with_suffix(".json")
    write_whole(path, text + "\n")
    if as_json:
        typer.echo(text)
        return
    title = f"{cost.survivors} clients, epsilon {cost.epsilon:g}, delta {cost.delta:g}"
    _say(title, _lines(answers, errors_alone=False))
    Console(stderr=True).print(f"{path}: veilsum stats show {path}", soft_wrap=True)


@stats_app.command("show")
def show_command(
    file: Annotated[Path, typer.Argument(help="Answers, as `veilsum stats run` wrote them.")],
    out: Annotated[Path | None, typer.Option(help="Picture; FILE with .png if left out.")] = None,
) -> None:
    """Draw the answers of a file, a panel for each question."""
    from protocol.errors import ConfigurationError
    from protocol.statistics.answers import Answer
    from simulations.common.files import write_whole

    try:
        answers = [Answer.from_dict(each) for each in json.loads(file.read_text())["answers"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        valid = "answers that `veilsum stats run` wrote"
        raise ConfigurationError(str(file), f"unreadable ({error})", valid) from None
    try:
        from simulations.reports.answers import panels
    except ModuleNotFoundError as error:
        valid = f"installed: {install_command('sim')}"
        raise ConfigurationError("matplotlib", "missing", valid) from error
    path = out or file.with_suffix(".png")
    write_whole(path, panels(answers))
    typer.echo(str(path))
