"""Runs with `engine.insecure_seed`: they repeat bit for bit, and say that they protect nobody."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import run_kit
import tomli_w
from command_line import invoke, run_json
from rich.console import Console
from run_kit import left
from small_runs import CHUNKED, config_of, lines, run, run_on_ranks

from dp import Ledger
from protocol.errors import ConfigurationError
from secagg import ServerSession
from simulations.common.files import write_whole
from simulations.learning.configuration import RunConfig, demo_config
from simulations.learning.data import Dataset
from simulations.learning.insecure import seed_in_notes
from simulations.learning.records import Record
from simulations.learning.run.callbacks import RunCallback
from simulations.learning.run.checkpoint import Checkpoint
from simulations.learning.run.experiment import RunResult
from simulations.learning.run.overrides import changed
from simulations.learning.run.secrets import RunSecrets
from simulations.learning.run.view import LiveView
from simulations.reports.demo import run_demo

KINDS = ("ideal", "real", "central", "skellam", "powersgd", "clipping", "fedsel", "secure levels")
WITH_WIRE = ("real", "skellam", "secure levels")
WITH_LEDGER = ("ideal", "real", "skellam", "powersgd", "clipping")
SAYS = "protects nobody: all its secrets follow from insecure_seed = 7"
"""What every output says, and none of a run with secrets of its own."""


def of_kind(kind: str, insecure_seed: int | None = 7, **changes: Any) -> RunConfig:
    """A small run; `None` for one that draws its secrets."""
    seed = {} if insecure_seed is None else {"engine.insecure_seed": insecure_seed}
    return config_of(CHUNKED, run_kit.KINDS[kind], seed, **changes)


@dataclass(frozen=True)
class Made:
    """What came of a run, its folder, and hashes of all messages that servers received."""

    result: RunResult
    path: Path
    wire: list[str]


def heard(kind: str, seed: int | None, data: Dataset, path: Path) -> Made:
    """Run; masks, keys and shares are in the messages."""
    messages: list[str] = []
    receive = ServerSession.receive_bytes

    def listen(session: ServerSession, sender: int, message: bytes) -> None:
        messages.append(f"{sender} {hashlib.sha256(message).hexdigest()}")
        receive(session, sender, message)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ServerSession, "receive_bytes", listen)
        return Made(run(of_kind(kind, seed), data, path), path, sorted(messages))


Making: TypeAlias = Callable[[str, int | None], Made]


@pytest.fixture(scope="module")
def made(data: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Making:
    """The run of a kind with a seed, or with none, once for all tests that look at it."""
    return cache(lambda kind, seed: heard(kind, seed, data, tmp_path_factory.mktemp("m") / "run"))


def forbid_entropy(patch: pytest.MonkeyPatch) -> None:
    """Let whoever asks the operating system for secrets fail."""

    def refuse(_: random.SystemRandom, count: int) -> bytes:
        raise AssertionError(f"{count} bytes were drawn from the operating system")

    # What `secrets.token_bytes` draws from; NumPy draws in another way, and throws it away.
    patch.setattr(random.SystemRandom, "randbytes", refuse)


@pytest.mark.parametrize("kind", KINDS)
def test_one_seed_repeats_everything_and_another_does_not(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Making, kind: str
) -> None:
    """And draws no secret."""
    runs = {name: made(kind, seed) for name, seed in {"one": 7, "other": 8, "drawn": None}.items()}
    forbid_entropy(monkeypatch)
    runs["again"] = heard(kind, 7, data, tmp_path / "again")
    found = {name: left(each.path) for name, each in runs.items()}
    wires = {name: each.wire for name, each in runs.items()}
    assert found["one"] == found["again"] and wires["one"] == wires["again"]
    assert bool(wires["one"]) is (kind in WITH_WIRE)
    for other in ("other", "drawn"):
        assert found["one"]["model"] != found[other]["model"]
        assert found["one"]["ledger"] != found[other]["ledger"] or kind not in WITH_LEDGER
        assert not set(wires["one"]) & set(wires[other])


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "central"])
def test_without_a_seed_secrets_are_drawn(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The control of the test above."""
    forbid_entropy(monkeypatch)
    with pytest.raises(AssertionError, match="drawn from the operating system"):
        run(of_kind(kind, None), data, tmp_path / "drawn")


@pytest.mark.parametrize("kind", ["ideal", "central", "powersgd", "fedsel"])
def test_any_number_of_ranks_repeats_it(
    data: Dataset, tmp_path: Path, made: Making, kind: str
) -> None:
    for size in (1, 2, 3):
        run_on_ranks(of_kind(kind), data, tmp_path / str(size), size)
        # What is measured, and never released, adds up in another order.
        assert left(tmp_path / str(size), "error") == left(made(kind, 7).path, "error")


def test_a_run_goes_on_where_it_stopped(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Making
) -> None:
    """Stopped after a charge: the round that was paid for is released again, at no further cost."""
    config = of_kind("ideal")

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "save", die)
        with pytest.raises(KeyboardInterrupt):
            run(config, data, tmp_path / "cut")
    assert not (tmp_path / "cut" / "secrets.key").exists()
    run(config, data, tmp_path / "cut")
    assert left(tmp_path / "cut") == left(made("ideal", 7).path)


@pytest.mark.parametrize(
    ("begun", "given", "says"),
    [
        (7, 8, "value 8 for a run that was begun with value 7"),
        (7, None, "none for a run that was begun with value 7"),
        (None, 7, "value 7 for a run that was begun with none"),
    ],
)
@pytest.mark.parametrize("edited", [False, True])
def test_no_folder_goes_on_with_another_seed_or_without_one(
    data: Dataset,
    tmp_path: Path,
    made: Making,
    edited: bool,
    begun: int | None,
    given: int | None,
    says: str,
) -> None:
    """Not even if somebody edits its configuration: the checkpoint says so too."""
    first, then = of_kind("ideal", begun), of_kind("ideal", given)
    shutil.copytree(made("ideal", begun).path, tmp_path / "run")
    (tmp_path / "run" / "summary.json").unlink()
    if edited:
        text = tomli_w.dumps(then.model_dump(exclude_none=True))
        (tmp_path / "run" / "config.toml").write_text(text)
    # Interrupted runs have one if they have no insecure seed; this one has ended.
    key = tmp_path / "run" / "secrets.key"
    if edited and given is None:
        key.write_bytes(bytes(32))
    with pytest.raises(ConfigurationError, match=f"insecure_seed: {says}"):
        run(then, data, tmp_path / "run")
    if not edited:
        # The control: with its own seed it goes on.
        if begun is None:
            key.write_bytes(bytes(32))
        run(first, data, tmp_path / "run")


def test_a_run_that_has_drawn_secrets_takes_no_seed(tmp_path: Path) -> None:
    RunSecrets.open(tmp_path / "secrets.key")
    with pytest.raises(ConfigurationError, match=r"insecure_seed: given for .*secrets\.key"):
        RunSecrets.open(tmp_path / "secrets.key", 7)


def test_the_key_is_still_a_secret_and_its_own_for_every_seed(tmp_path: Path) -> None:
    found = [RunSecrets.open(tmp_path / "secrets.key", seed) for seed in (0, 1, 7, 7)]
    drawn = [secrets.noise(0).material for secrets in found]
    assert drawn[2] == drawn[3] and len(set(drawn)) == 3
    assert repr(found[0]) == "RunSecrets(<secret>)" and "secret" in repr(found[0].noise(0))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["ideal", "real", "central", "fedsel", "powersgd", "clipping"])
@pytest.mark.parametrize("insecure", [True, False])
def test_records_summary_and_ledger_say_so(made: Making, kind: str, insecure: bool) -> None:
    found = made(kind, 7 if insecure else None)
    result, path = found.result, found.path
    records = lines(path / "rounds.jsonl")
    assert [r.get("insecure_seed") for r in records] == [7 if insecure else None] * 3
    summary = json.loads((path / "summary.json").read_text())
    assert summary == result.summary()
    assert (summary.get("insecure_seed") == 7) is insecure
    assert (SAYS in f"protects {summary.get('protects')}") is insecure
    if kind in WITH_LEDGER:
        with Ledger.open(path / "ledger.jsonl") as ledger:
            notes = [entry.metadata["notes"] for entry in ledger.entries()]
        assert {note.get("insecure_seed") for note in notes} == {7 if insecure else None}
        assert all((SAYS in f"protects {note.get('protects')}") is insecure for note in notes)


class Shown(RunCallback):
    """What stands on a console when a run begins."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def start(self, config: RunConfig, folder: Path, earlier: Sequence[Record]) -> None:
        self.text = " ".join(self._console.export_text(clear=False).split())


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("insecure", [True, False])
def test_the_live_view_says_so_and_promises_nothing(
    data: Dataset, tmp_path: Path, terminal: bool, insecure: bool
) -> None:
    config = of_kind("ideal", 7 if insecure else None)
    with open(os.devnull, "w") as nowhere:
        console = Console(record=True, force_terminal=terminal, width=120, file=nowhere)
        begun = Shown(console)
        run(config, data, tmp_path / "run", LiveView(config, console), begun)
    text = " ".join(console.export_text().split())
    # Before the first round, above the rounds of a terminal, and again when those scrolled by.
    assert (SAYS in begun.text) is insecure
    assert (text.count(SAYS) >= 2 + terminal) is insecure
    assert ("is guaranteed against the server" in text) is not insecure


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two folders of runs, `insecure` and `drawn`, made by the command; and its configuration."""
    path = tmp_path_factory.mktemp("commands")
    config = of_kind("ideal", None).model_dump(exclude_none=True)
    write_whole(path / "run.toml", tomli_w.dumps(config).encode())
    for name, options in {"insecure": ["--insecure-seed", 7], "drawn": []}.items():
        told = invoke("run", path / "run.toml", *options, "--out", path / name)
        assert told.exit_code == 0, told.output
        insecure = name == "insecure"
        # In the forecast, above and below the rounds, and in the summary.
        words = " ".join(told.output.replace("│", " ").split())
        assert (words.count("follow from insecure_seed = 7") == 4) is insecure
    return path


def test_the_command_says_so_in_json(folder: Path) -> None:
    options = ["run", folder / "run.toml", "--insecure-seed", 7]
    for figures in (
        run_json(*options, "--dry-run"),
        run_json(*options, "--out", folder / "insecure"),
    ):
        assert figures["insecure_seed"] == 7 and SAYS in f"protects {figures['protects']}"
    without = run_json("run", folder / "run.toml", "--dry-run")
    assert "insecure_seed" not in without and "protects" not in without


@pytest.mark.parametrize(
    ("option", "says"),
    [(["--insecure-seed", 8], "value 8"), ([], "none for a run"), (["--insecure-seed", -1], "")],
)
def test_the_command_refuses_another_seed(
    folder: Path, option: Sequence[object], says: str
) -> None:
    result = invoke("run", folder / "run.toml", *option, "--out", folder / "insecure")
    assert result.exit_code and (says in str(result.exception))


def test_a_sweep_says_so(tmp_path: Path, folder: Path) -> None:
    seeds = ["--set", "engine.insecure_seed=1,2", "--out", tmp_path / "sweep"]
    told = invoke("sweep", folder / "run.toml", *seeds)
    assert "2 of 2 runs have an insecure_seed, and protect nobody" in told.stdout
    points = json.loads((tmp_path / "sweep" / "sweep.json").read_text())
    assert [point["insecure_seed"] for point in points] == [1, 2]
    assert points[0]["loss"] != points[1]["loss"]
    other = ["--set", "rounds=1,2", "--out", tmp_path / "other"]
    assert "protect nobody" not in invoke("sweep", folder / "run.toml", *other).stdout


@pytest.mark.slow
def test_the_report_says_so_above_all_else(tmp_path: Path, folder: Path) -> None:
    def page_of(*runs: str) -> str:
        out = tmp_path / f"{'-'.join(runs)}.html"
        told = invoke("report", *(folder / name for name in runs), "--out", out)
        assert told.exit_code == 0, told.output
        return out.read_text()

    page = page_of("insecure")
    banner = f'<p class="warning" role="note">This run {SAYS}'
    assert banner in page and page.index(banner) < page.index('<main id="main">')
    assert page.count(SAYS) == 2  # also in the notes of the run
    assert "nobody protected: the noise is that of epsilon 30" in page
    assert "guaranteed against the server at delta" not in page
    both = page_of("insecure", "drawn")
    assert "These runs protect nobody: insecure. All their secrets follow from" in both
    without = page_of("drawn")
    assert 'class="warning"' not in without and SAYS not in without
    assert "guaranteed against the server at delta" in without


def test_an_account_of_the_ledger_says_so_and_guarantees_nothing(folder: Path) -> None:
    for name, insecure in {"insecure": True, "drawn": False}.items():
        ledger = folder / name / "ledger.jsonl"
        figures = run_json("audit-ledger", ledger)
        assert (figures.get("insecure_seed") == 7) is insecure
        assert (SAYS in f"protects {figures.get('protects')}") is insecure
        assert ("guaranteed" in figures) is not insecure
        told = " ".join(invoke("audit-ledger", ledger).stdout.replace("│", " ").split())
        assert (SAYS in told) is insecure
        assert ("guaranteed" in told) is not insecure


def test_no_deployment_is_planned_on_its_ledger(folder: Path) -> None:
    goal = ["--epsilon", 30, "--delta", 1e-5, "--rounds", 1]
    for name, refused in {"insecure": True, "drawn": False}.items():
        ledger = folder / name / "ledger.jsonl"
        told = invoke("plan", "--clients", 50, *goal, "--ledger", ledger)
        assert ("insecure_seed = 7" in str(told.exception)) is refused


def test_notes_of_others_are_no_seed() -> None:
    for notes in (None, "insecure_seed", {}, {"insecure_seed": "7"}, {"insecure_seed": True}):
        assert seed_in_notes([{"notes": notes}, {}]) is None
    assert seed_in_notes([{}, {"notes": {"insecure_seed": 0}}]) == 0


def test_plain_averaging_has_no_secrets(data: Dataset, tmp_path: Path) -> None:
    config = changed(of_kind("ideal"), [("engine.aggregator", "plain")])
    with pytest.raises(ConfigurationError, match=r"engine\.insecure_seed: given for plain"):
        run(config, data, tmp_path / "run")


@pytest.mark.parametrize("seed", [-1, 1 << 63, 1.5, True, "7"])
def test_a_seed_is_an_integer_of_a_configuration_file(seed: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"engine\.insecure_seed"):
        of_kind("ideal", seed)


def test_the_demo_draws_its_secrets(tmp_path: Path) -> None:
    config = changed(demo_config(), [("engine.insecure_seed", 7)])
    with pytest.raises(ConfigurationError, match=r"engine\.insecure_seed: given for the demo"):
        run_demo(config, tmp_path / "demo", Console(quiet=True))
    assert not (tmp_path / "demo").exists()
