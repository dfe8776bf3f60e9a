"""The engine of all campaigns: cells and their store, source, pool, tuning, claims, the page."""

from __future__ import annotations

import gzip
import json
import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from typer.testing import CliRunner

from protocol.errors import ConfigurationError
from simulations.campaigns import campaign, catalog, store
from simulations.campaigns.campaign import Campaign, Options
from simulations.campaigns.claims import (
    NOT_REPRODUCED,
    REPRODUCED,
    UNDECIDED,
    Claim,
    Interval,
    above,
    agreed,
    close,
    every,
    half_width,
    within,
)
from simulations.campaigns.plots import Style, curve, dress, panels
from simulations.campaigns.render import Column, Part, Text, percent, pivot, points, table
from simulations.campaigns.rows import distinct, first, where
from simulations.campaigns.seeds import bytes_of, evaluated, rng_of, seed_of, tried
from simulations.campaigns.store import Cell, Result, Store, plain
from simulations.campaigns.study import Study
from simulations.campaigns.tuning import (
    Way,
    climb,
    first_best,
    grid,
    smallest_best,
    tune_then_evaluate,
)
from simulations.commands import cli
from simulations.commands.reproduce import carry_out, finished
from simulations.common import provenance as source
from simulations.common.executors import executor
from simulations.common.files import write_whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Numbers to be squared."""

    numbers: tuple[float, ...] = (1.0, 2.0, 3.0)
    shift: float = 0.0
    word: str = "usual"
    seeds: int = 2


MADE: list[tuple[float, int]] = []


def squared(number: float, shift: float, seed: int) -> dict[str, float]:
    """One cell; what was made is noted."""
    MADE.append((number, seed))
    return {"number": number, "square": number**2 + shift, "seed": seed}


def figures_of(study: Study[Plan]) -> dict[str, Any]:
    """All numbers at all seeds."""
    plan = study.plan
    cells = [
        Cell(f"{number:g} {seed}", squared, (number, plan.shift, seed))
        for number in plan.numbers
        for seed in study.seeds
    ]
    return {"rows": study.results(cells)}


def claims_of(figures: Any) -> Iterator[Claim]:
    """One claim, from the rows alone."""
    least = min(row["square"] for row in figures["rows"])
    yield Claim("four is a [square]", "Section 1", REPRODUCED, f"of {least:g}")


def parts(figures: Any) -> Iterator[Part]:
    """One text and one table."""
    yield Text(f"{figures['plan']['word']} [words]", brief=True)
    yield table(
        "Squares", [Column("of", "number", "g"), Column("is", "square", "g")], figures["rows"]
    )


def plot(figures: Any) -> Figure:
    """Draw one curve."""
    figure, [[axes]] = panels(1, 1, 3.0, 2.0)
    curve(axes, figures["rows"], "number", "square", Style("squares", "black"), width="seed")
    dress(axes, "number", "square", log="x", percents=True, ticks=(1.0, 3.0), legend="below")
    return figure


CAMPAIGN = Campaign(
    name="squares",
    title="Squares",
    presets={"usual": Plan(), "quick": Plan(numbers=(2.0,), word="quick")},
    figures=figures_of,
    claims=claims_of,
    parts=parts,
    plots={"curve": plot},
    stem="squares-{plan[word]}",
)


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Run the campaign in one folder, and forget what was made before."""

    def carried(told: list[str] | None = None, **changes: Any) -> dict[str, Any]:
        MADE.clear()
        tell = None if told is None else told.append
        study = CAMPAIGN.study(Plan(**changes), tmp_path, tell=tell)
        return {**CAMPAIGN.run(study), "seconds": 0.0}

    return carried


class TestStudy:
    def test_what_is_finished_is_not_made_again(self, run: Callable[..., dict[str, Any]]) -> None:
        first = run()
        assert MADE == [(n, s) for n in (1.0, 2.0, 3.0) for s in (1, 2)]
        assert run() == first and not MADE
        # More of the same makes only what is missing; other configurations make all.
        assert len(run(numbers=(1.0, 2.0, 3.0, 4.0))["rows"]) == 8 and MADE == [(4.0, 1), (4.0, 2)]
        run(shift=1.0)
        assert len(MADE) == 6

    def test_results_of_other_source_are_not_used_and_it_is_said(
        self, run: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        told: list[str] = []
        run(told)
        monkeypatch.setattr(store, "source_of", lambda _: "another")
        run(told)
        assert len(MADE) == 6 and len(told) == 1
        assert "6 results" in told[0] and "other source code" in told[0]
        monkeypatch.undo()
        run(told)
        assert not MADE and len(told) == 1

    def test_an_interrupted_campaign_goes_on(self, tmp_path: Path) -> None:
        def fails(number: float, *_: object) -> dict[str, float]:
            if number == 3.0:
                raise KeyboardInterrupt
            return squared(number, 0.0, 1)

        with pytest.raises(KeyboardInterrupt), Study(Plan(), tmp_path) as study:
            study.results([Cell(f"{n:g}", fails, (n,)) for n in (1.0, 2.0, 3.0)])
        # The last line was being written when the machine stopped.
        path = tmp_path / store.FILE
        path.write_bytes(path.read_bytes() + b'{"name": "3"')
        MADE.clear()
        with Study(Plan(), tmp_path) as study:
            found = study.results([Cell(f"{n:g}", fails, (n,)) for n in (2.0, 1.0)])
        assert [each["number"] for each in found] == [2.0, 1.0] and not MADE

    def test_processes_make_the_same(self, tmp_path: Path) -> None:
        cells = [Cell(f"{n}", seed_of, (n, "word")) for n in range(4)]
        with Study(Plan(), tmp_path / "one") as study:
            alone = study.results(cells)
        with executor(2) as places, Study(Plan(), tmp_path / "two", executor=places) as study:
            assert study.results(cells) == alone == [list(seed_of(n, "word")) for n in range(4)]

    def test_a_cell_that_fails_costs_no_result_of_another(self, tmp_path: Path) -> None:
        failed = Event()

        def patient(number: int) -> int:
            assert failed.wait(60.0)
            # The failure is told before this result is there.
            time.sleep(0.2)
            return number

        def fails(number: int) -> int:
            failed.set()
            raise ValueError(f"no {number}")

        kept, lost = Cell("kept", patient, (1,)), Cell("lost", fails, (2,))
        with (
            pytest.raises(ValueError, match="no 2"),
            ThreadPoolExecutor(2) as threads,
            Study(Plan(), tmp_path, executor=threads) as under_way,
        ):
            under_way.results([kept, lost])
        with Store(tmp_path) as found:
            assert found.find(kept) is not None and found.find(lost) is None

    def test_a_folder_serves_one_process_at_a_time(self, tmp_path: Path) -> None:
        with Store(tmp_path), pytest.raises(ConfigurationError, match="in use"):
            Store(tmp_path)
        with Store(tmp_path):
            pass

    def test_a_cell_that_is_asked_for_twice_is_made_once(self, tmp_path: Path) -> None:
        MADE.clear()
        cell, other = (Cell("same", squared, (2.0, shift, 1)) for shift in (0.0, 1.0))
        with Study(Plan(), tmp_path) as study:
            found = study.results([cell, other, cell])
        assert [each["square"] for each in found] == [4.0, 5.0, 4.0] and len(MADE) == 2


def test_keys_tell_types_and_values_apart() -> None:
    @dataclass(frozen=True)
    class Other:
        numbers: tuple[float, ...] = (1.0, 2.0, 3.0)
        shift: float = 0.0
        word: str = "usual"
        seeds: int = 2

    keys = {Cell("a", squared, (each,)).key for each in (Plan(), Other(), Plan(seeds=3), 1, "1")}
    assert len(keys) == 5
    assert Cell("a", squared, (1,)).key != Cell("a", plain, (1,)).key
    assert plain({"a": np.float64(0.5), "b": (np.arange(2), Plan())})["b"][0] == [0, 1]
    with pytest.raises(TypeError, match="no JSON value"):
        Cell("a", squared, (object(),)).key  # noqa: B018


class TestSource:
    def test_a_digest_follows_imports_and_nothing_else(self) -> None:
        imported = set()
        waiting = ["simulations.reproduce.cpsgd.theorems"]
        while waiting:
            name = waiting.pop()
            if name not in imported and source._path(name):
                imported.add(name)
                waiting += source._imported(name)
        assert {"dp.mechanisms.levels", "sketch.rotation", "dp"} <= imported
        assert not any(name.startswith(("simulations.audits", "matplotlib")) for name in imported)

    def test_a_package_that_fetches_names_counts_as_a_whole(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        package = tmp_path / "lazily"
        package.mkdir()
        (package / "__init__.py").write_text("def __getattr__(name): ...\n")
        (package / "inner.py").write_text("x = 1\n")
        (package / "user.py").write_text("def f():\n    from lazily import x\n    return x\n")
        monkeypatch.setattr(source, "OURS", ("lazily",))
        monkeypatch.syspath_prepend(tmp_path)
        before = source.source_of("lazily.user")
        for forget in (source.source_of, source._path, source._imported):
            forget.cache_clear()
        (package / "inner.py").write_text("x = 2\n")
        assert source.source_of("lazily.user") != before


class TestSeeds:
    def test_streams_are_told_apart_by_words_and_numbers(self) -> None:
        assert seed_of(1, 2, "x") == (1, 2, 2363233923)
        states = {rng_of(1, *labels).random() for labels in ((), (1,), ("a",), ("b",), (1, "a"))}
        assert len(states) == 5
        assert bytes_of("a", 1) == bytes_of("a 1") != bytes_of("a", 2)

    def test_trials_have_seeds_of_their_own(self) -> None:
        assert evaluated(3, 2) == (3, 4) and not {*evaluated(1, 999)} & {*tried(1, 999)}


class TestTuning:
    @staticmethod
    def way(top: float, search: Any) -> Way[Any]:
        """Something that is best at the top."""

        def cells(x: Any, trial: bool) -> list[Cell]:
            return [Cell(f"{'trial' if trial else 'run'} {top} {x}", height, (top, x))]

        return Way(search, cells)

    def test_a_grid_is_tried_and_its_best_is_run(self, tmp_path: Path) -> None:
        with Study(Plan(), tmp_path) as study:
            ways = {top: self.way(top, grid([1.0, 2.0, 3.0])) for top in (2.2, 9.0)}
            low, high = tune_then_evaluate(study, ways).values()
        assert (low.chosen, high.chosen) == (2.0, 3.0)
        assert list(low.tried) == [1.0, 2.0, 3.0] and low.runs == [{"accuracy": low.tried[2.0]}]
        assert low.trials[1.0] == [{"accuracy": low.tried[1.0]}]

    @pytest.mark.parametrize(("top", "most"), [(0, 3), (2, 3), (-2, 3), (9, 3), (-9, 3)])
    def test_a_climb_ends_at_the_top_or_at_the_edge(
        self, tmp_path: Path, top: int, most: int
    ) -> None:
        with Study(Plan(), tmp_path) as study:
            found = tune_then_evaluate(study, {"": self.way(top, climb(0, most))})[""]
        assert found.chosen == max(-most, min(most, top))
        # Nothing is tried behind what is already worse.
        assert len(found.tried) <= most + 2

    def test_of_equals_the_first_or_the_smallest_is_chosen(self) -> None:
        tried = {2: 1.0, 1: 1.0, 0: 0.5}
        assert (first_best(tried), smallest_best(tried)) == (2, 1)


def test_arms_have_their_results_seed_by_seed(tmp_path: Path) -> None:
    MADE.clear()
    with Study(Plan(), tmp_path, seed=5, seeds=2) as study:
        arms = [3.0, 1.0]
        found = study.by_arm(arms, lambda x, seed: Cell(f"{x} {seed}", squared, (x, 0.0, seed)))
    assert [[(row["number"], row["seed"]) for row in each] for each in found] == [
        [(arm, 5), (arm, 6)] for arm in arms
    ]
    assert MADE == [(3.0, 5), (1.0, 5), (3.0, 6), (1.0, 6)]


def test_rows_are_found_by_their_values() -> None:
    rows = [{"a": 2, "b": 1}, {"a": 1, "b": 1}, {"a": 2, "b": 2}]
    assert distinct(rows, "a") == [2, 1] and distinct(rows, lambda row: row["b"]) == [1, 2]
    assert where(rows, a=2) == [rows[0], rows[2]] and where(rows, a=2, b=2) == [rows[2]]
    assert first(rows, b=1) is rows[0] and first(rows, a=3) is None


def height(top: float, x: float) -> dict[str, float]:
    """A hill with its top there."""
    return {"accuracy": -((x - top) ** 2)}


class TestClaims:
    def test_intervals_are_students(self) -> None:
        assert half_width([0.5]) is None and math.isinf(Interval.of([0.5]).half())
        # The quantile with one degree of freedom is tan(0.475 pi), the standard error 0.05.
        assert half_width([0.4, 0.5]) == pytest.approx(math.tan(0.475 * math.pi) * 0.05)
        # With two it is 4.3027, and 9.9248 for 99 %; the standard error is 1 / sqrt(3).
        three = [1.0, 2.0, 3.0]
        assert half_width(three) == pytest.approx(4.302653 / math.sqrt(3), rel=1e-6)
        assert Interval.of(three).half(0.01) == pytest.approx(9.924843 / math.sqrt(3), rel=1e-6)
        # An error that is known by itself: the normal law.
        assert Interval(0.0, 1.0, math.inf).half() == pytest.approx(1.959964, rel=1e-6)

    def test_verdicts_follow_from_intervals(self) -> None:
        def at(mean: float) -> Interval:
            return Interval(mean, 1.0 / 1.959964, math.inf)

        assert [above(at(x), 0.0) for x in (1.1, 0.9, -1.1)] == [
            REPRODUCED,
            UNDECIDED,
            NOT_REPRODUCED,
        ]
        assert above(at(-0.6), 0.0, 0.5) == NOT_REPRODUCED
        assert [within(at(x), 2.0) for x in (0.9, 1.1, 3.1, -3.1)] == [
            REPRODUCED,
            UNDECIDED,
            NOT_REPRODUCED,
            NOT_REPRODUCED,
        ]
        assert [close(x, 2.0, 0.01) for x in (2.01, 2.03)] == [REPRODUCED, NOT_REPRODUCED]

    def test_every_case_means_every_one(self) -> None:
        assert every([REPRODUCED, REPRODUCED]) == REPRODUCED
        assert every([REPRODUCED, UNDECIDED]) == every([]) == UNDECIDED
        assert every([UNDECIDED, NOT_REPRODUCED, REPRODUCED]) == NOT_REPRODUCED
        assert agreed([NOT_REPRODUCED, NOT_REPRODUCED]) == NOT_REPRODUCED
        assert agreed([NOT_REPRODUCED, REPRODUCED]) == agreed([]) == UNDECIDED

    def test_a_claim_says_what_it_rests_on(self) -> None:
        found = Claim.about("more", "Figure 1", Interval.of([1.0]), UNDECIDED)
        assert (found.measured, found.half_width, found.tolerance) == (1.0, None, 0.0)

    def test_figures_that_are_kept_can_be_judged_again(self) -> None:
        kept = {"rows": [{"square": 9.0}], "claims": ["another verdict"]}
        (claim,) = CAMPAIGN.judged(kept)["claims"]
        assert (claim["verdict"], claim["seen"]) == (REPRODUCED, "of 9")
        unjudged = replace(CAMPAIGN, claims=None)
        assert unjudged.judged(kept) == kept


class TestPage:
    def test_columns(self) -> None:
        row = {
            "a": {"b": 0.125},
            "w": 0.0125,
            "none": None,
            "yes": True,
            "many": (1, 2),
            "word": "x",
        }
        columns = [
            (Column("", "a.b", ".2f"), "0.12"),
            (Column("", "a.b", "+.1f", 100, "w", ".2f"), "+12.5 ± 1.25"),
            (percent("", "a.b", "w", "+.2f"), "+12.50 ± 1.25"),
            (percent("", "a.b", "none"), "12.5"),
            (Column("", "none.b", "g", missing="none"), "none"),
            (Column("", "yes"), "yes"),
            (Column("", "many"), "1, 2"),
            (Column("", lambda each: each["word"] * 2), "xx"),
        ]
        assert [column.cell(row) for column, _ in columns] == [text for _, text in columns]
        assert points(0.5, None) == "50.0"

    def test_a_pivot_has_a_column_for_each_value(self) -> None:
        rows = [{"a": "x", "at": 1.0, "v": 1}, {"a": "y", "at": 2.0, "v": 2}, {"a": "z", "v": 3}]
        grid_ = pivot("", [Column("way", "a")], "at", Column("", "v"), rows, head="at {:g}".format)
        assert grid_.markdown() == (
            "| way | at 1 | at 2 |\n| --- | --- | --- |\n"
            "| x | 1 | - |\n| y | - | 2 |\n| z | 3 | 3 |\n"
        )

    def test_a_command_writes_and_shows_everything(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        options = Options("quick", {"shift": [1]}, seeds=1, seed=5)
        carry_out(CAMPAIGN, options, tmp_path)
        printed = capsys.readouterr()
        for words in ("quick [words]", "four is a [square]", "page: ", "squares-quick.png"):
            assert words in printed.out
        assert "1 made now" in printed.err
        figures = json.loads((tmp_path / "squares-quick.json").read_text())
        assert figures["rows"] == [{"number": 2.0, "square": 5.0, "seed": 5}]
        assert figures["command"] == "squares --quick --set shift=1 --seeds 1 --seed 5"
        page = (tmp_path / "squares-quick.md").read_text()
        assert page == CAMPAIGN.page(figures)
        for words in (figures["command"], "![curve](squares-quick.png)", "| 2 | 5 |", "## Claims"):
            assert words in page
        assert (tmp_path / "squares-quick.png").read_bytes().startswith(b"\x89PNG")
        carry_out(CAMPAIGN, options, tmp_path, as_json=True)
        printed = capsys.readouterr()
        assert json.loads(printed.out) == figures
        assert "nothing was left to run" in printed.err and "page: " in printed.err

    def test_a_folder_that_cannot_be_written_to_does_not_cost_the_figures(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("simulations.campaigns.campaign.write_whole", refuse)
        with pytest.raises(OSError, match="No space"):
            carry_out(CAMPAIGN, Options("quick"), tmp_path, as_json=True)
        assert '"square": 4.0' in capsys.readouterr().out

    def test_figures_are_there_when_all_else_is(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(path: Path, content: str | bytes) -> None:
            if path.suffix == ".png":
                raise OSError(28, "No space left on device")
            write_whole(path, content)

        monkeypatch.setattr("simulations.campaigns.campaign.write_whole", full)
        with pytest.raises(OSError, match="No space"):
            carry_out(CAMPAIGN, Options("quick"), tmp_path)
        assert finished(tmp_path, "squares", Options("quick")) is None
        monkeypatch.undo()
        carry_out(CAMPAIGN, Options("quick"), tmp_path)
        assert finished(tmp_path, "squares", Options("quick")) == tmp_path / "squares-quick.json"

    def test_a_file_that_is_named_may_have_changed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        options = Options("quick", {"word": ["named"]})
        carry_out(CAMPAIGN, options, tmp_path / "out")
        assert finished(tmp_path / "out", "squares", options) is not None
        (tmp_path / "named").touch()
        assert finished(tmp_path / "out", "squares", options) is None

    def test_figures_name_the_source_that_began(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        began = source.provenance()

        def edited(under_way: Study[Plan]) -> dict[str, Any]:
            other = replace(began, source="edited meanwhile")
            monkeypatch.setattr(campaign, "provenance", lambda: other)
            return figures_of(under_way)

        changing = replace(CAMPAIGN, figures=edited)
        found = changing.run(changing.study(Plan(), tmp_path))
        assert found["source"] == began.source

    def test_a_plan_is_shown_without_running_anything(self, tmp_path: Path) -> None:
        command = ["reproduce", "equal-error", "--plan", "--out", str(tmp_path / "new")]
        assert "noises" in CliRunner().invoke(cli.app, command).output
        assert not (tmp_path / "new").exists()


class TestPlans:
    def test_fields_have_the_type_of_the_plan(self) -> None:
        plan = CAMPAIGN.plan(Options(changes={"numbers": [4, 0.5], "word": ["new"]}, seeds=7))
        assert plan == Plan(numbers=(4.0, 0.5), word="new", seeds=7)

    @pytest.mark.parametrize(
        ("options", "told"),
        [
            (Options("slow"), "preset: value 'slow'; valid: usual, quick"),
            (Options(changes={"colour": [1]}), "colour: no field of the plan"),
            (Options(changes={"shift": ["far"]}), "shift: value .*valid: float"),
            (Options(changes={"shift": [1, 2]}), "shift: 2 values; valid: one"),
        ],
    )
    def test_what_a_plan_does_not_have_is_refused(self, options: Options, told: str) -> None:
        with pytest.raises(ConfigurationError, match=told):
            CAMPAIGN.plan(options)


@pytest.mark.parametrize(
    ("name", "options", "told"),
    [
        (
            "adaptive-mean",
            Options("growth", {"dimensions": [64, 128]}),
            "dimensions must be at least 3",
        ),
        ("adaptive-mean", Options(seeds=1), "seeds must be at least 2"),
        ("autotune", Options("quick", {"rates": [0.5]}), "rates must be 1 at least"),
        ("compression", Options("snli"), "names, names-shared, fashion-mnist, cifar10, quick"),
        *(
            ("cpsgd-mnist", Options(changes=changes), r"steps >= 1|epsilons must be")
            for changes in ({"levels": [1]}, {"epsilons": [9.0]}, {"steps": [0]})
        ),
        *(
            ("equal-error", Options(changes=changes), "must be in")
            for changes in ({"noises": [0.01]}, {"clients": [1]})
        ),
        *(
            ("fedsel", Options(changes={field: [1]}), f"{field} must be at least 2, got 1")
            for field in ("repeats", "sweep_repeats", "folds")
        ),
        ("fedsel", Options(changes={"tuning_repeats": [0]}), "tuning_repeats must be at least 1"),
        ("sqsgd", Options("vgg"), "lenet5, resnet110, quick"),
        ("sqsgd", Options(changes={"model": ["vgg"]}), "lenet5, resnet110, tiny"),
        ("sqsgd", Options("resnet110"), "a machine with a GPU, or --set force=true"),
    ],
)
def test_a_campaign_refuses_plans_that_say_nothing(
    name: str, options: Options, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(ConfigurationError, match=told):
        catalog.campaign(name).plan(options)


@pytest.mark.parametrize("name", list(catalog.CAMPAIGNS))
def test_every_campaign_can_be_loaded_and_is_quick(name: str) -> None:
    campaign = catalog.campaign(name)
    assert campaign.name == name and "quick" in campaign.presets


def test_the_command_lists_campaigns_and_refuses_unknown_ones() -> None:
    listed = CliRunner().invoke(cli.app, ["reproduce"]).output
    assert all(name in listed and about in listed for name, about in catalog.CAMPAIGNS.items())
    refused = CliRunner().invoke(cli.app, ["reproduce", "alchemy"]).exception
    assert isinstance(refused, ConfigurationError) and "trust-models" in str(refused)


def test_a_result_keeps_its_time(tmp_path: Path) -> None:
    cell = Cell("a", squared, (1.0, 0.0, 1))
    with Store(tmp_path) as kept:
        kept.keep(cell, Result(1, 2.5))
    with Store(tmp_path) as kept:
        assert kept.find(cell) == Result(1, 2.5)


def test_a_finished_campaign_is_not_even_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reproduced: Callable[..., dict[str, Any]]
) -> None:
    asked = ("squares", "--quick", "--out", tmp_path)
    monkeypatch.setattr(catalog, "campaign", lambda _: CAMPAIGN)
    figures = reproduced(*asked)

    def loaded(name: str) -> Campaign[Any]:
        raise LookupError(f"{name} was loaded")

    with monkeypatch.context() as patch:
        patch.setattr(catalog, "campaign", loaded)
        assert reproduced(*asked) == figures
        command = ["reproduce", *map(str, asked)]
        again = CliRunner().invoke(cli.app, command)
        assert again.exit_code == 0 and "finished" in again.stderr
        assert str(tmp_path / "squares-quick.json") in again.stderr.replace("\n", "")
        # Other words, other source, or a page that is gone: it is looked through again.
        with pytest.raises(LookupError, match="was loaded"):
            CliRunner().invoke(cli.app, [*command, "--seed", "2"], catch_exceptions=False)
        patch.setattr("simulations.commands.reproduce.source_hash", lambda: "another")
        with pytest.raises(LookupError, match="was loaded"):
            CliRunner().invoke(cli.app, command, catch_exceptions=False)
    page = tmp_path / "squares-quick.md"
    page.unlink()
    assert reproduced(*asked)["rows"] == figures["rows"]
    assert page.exists()


def test_a_page_is_made_anew_from_its_figures(
    tmp_path: Path, reproduced: Callable[..., dict[str, Any]]
) -> None:
    figures = reproduced("equal-error", "--quick", "--out", tmp_path)
    kept = tmp_path / "kept.json.gz"
    kept.write_bytes(gzip.compress((tmp_path / "equal-error.json").read_bytes()))
    anew = tmp_path / "anew"
    assert reproduced("equal-error", "--from", kept, "--out", anew) == figures
    for name in ("equal-error.json", "equal-error.md", "equal-error.png"):
        assert (anew / name).read_bytes() == (tmp_path / name).read_bytes()
    (tmp_path / "other.json").write_text("[]")
    for name, file, told in (
        ("fedsel", kept, "--from"),
        ("equal-error", tmp_path / "other.json", "other.json"),
    ):
        refused = CliRunner().invoke(cli.app, ["reproduce", name, "--from", str(file)]).exception
        assert isinstance(refused, ConfigurationError) and told in str(refused)


def test_tables_of_a_written_page_are_made_anew(
    tmp_path: Path, reproduced: Callable[..., dict[str, Any]]
) -> None:
    reproduced("equal-error", "--quick", "--out", tmp_path)
    page, title = tmp_path / "page.md", "Bits of a coordinate, by z"
    head, foot = f"Words.\n\n<!-- rows: equal-error.json, {title} -->\n\n", "<!-- end of rows -->\n"

    def renew(text: str, *more: str) -> BaseException | None:
        page.write_text(text)
        return CliRunner().invoke(cli.app, ["reproduce", *more, "--page", str(page)]).exception

    assert renew(f"{head}| a |\n{foot}After.\n") is None
    whole = page.read_text()
    made = (tmp_path / "equal-error.md").read_text()
    table = made[made.index("| system", made.index(title)) : made.index("## Setting")].strip()
    assert whole == f"{head}{table}\n\n{foot}After.\n"
    assert renew(whole.replace("| 17 |", "| 18 |")) is None and page.read_text() == whole
    for wrong, told in (("Bits", title), ("equal-error.json", "a file that a campaign wrote")):
        refused = renew(head.replace(wrong, "none") + foot)
        assert isinstance(refused, ConfigurationError) and told in str(refused)
    both = renew(whole, "equal-error")
    assert isinstance(both, ConfigurationError) and "given together with equal-error" in str(both)
