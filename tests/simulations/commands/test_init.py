"""`veilsum init` writes a file that explains itself and that `veilsum run` accepts."""

from __future__ import annotations

import contextlib
import tomllib
from pathlib import Path

import pytest
from command_line import invoke, run_json

from protocol.errors import ConfigurationError
from protocol.planning.configuration import load, parse
from simulations.learning.configuration import RunConfig
from simulations.learning.data import DATASETS
from simulations.learning.keys import tables
from simulations.learning.models import MODELS
from simulations.learning.template import FOLDER, commented, example_names, example_text


def test_what_it_writes_passes_a_dry_run(tmp_path: Path) -> None:
    with contextlib.chdir(tmp_path):
        written = invoke("init")
        assert written.exit_code == 0, written.output
        assert "veilsum run veilsum.toml --dry-run" in written.stdout
        figures = run_json("run", "veilsum.toml", "--dry-run")
    assert figures["rounds"] == 24
    assert load(tmp_path / "veilsum.toml", RunConfig) == load(FOLDER / "digits.toml", RunConfig)


@pytest.mark.parametrize("name", example_names())
def test_every_example_keeps_its_values(name: str, tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    assert invoke("init", path, "--example", name).exit_code == 0
    assert load(path, RunConfig) == load(FOLDER / f"{name}.toml", RunConfig)


@pytest.mark.parametrize("name", example_names())
def test_what_stands_in_comments_are_the_defaults(name: str) -> None:
    """With the mark of the comments removed the file means the same."""
    lines = [
        line.removeprefix("#")
        for line in commented(name).splitlines()
        if line.startswith("#") and not line.startswith("# ") and not line.endswith("=")
    ]
    assert len(lines) > 10
    given = parse(tomllib.loads(example_text(name)), RunConfig)
    text = "\n".join(
        line.removeprefix("#") if line.removeprefix("#") in lines else line
        for line in commented(name).splitlines()
    )
    filled = parse(tomllib.loads(text), RunConfig)
    assert filled.model_dump(exclude={"sketch"}) == given.model_dump(exclude={"sketch"})
    assert filled.sketch.build(filled.rounds) == given.sketch.build(given.rounds)


def test_every_key_has_its_comment() -> None:
    text = commented()
    for table in tables():
        assert table.meaning, table.name
        assert all(key.meaning for key in table.keys), table.name
        if table.optional:
            assert f"# [{table.name}]" in text
        else:
            used = table.in_use({})
            for key in table.keys:
                assert (key.name not in used) or f"{key.name} =" in text, key.name


def test_names_are_those_of_the_program() -> None:
    text = " ".join(commented().replace("#", "").split())
    assert f"one of {', '.join(DATASETS)};" in text
    assert f"one of {', '.join(MODELS)};" in text


def test_another_data_set_and_model(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    options = ("--example", "million", "--data", "mnist", "--model", "cnn")
    assert invoke("init", path, *options).exit_code == 0
    task = load(path, RunConfig).task
    assert (task.data, task.model) == ("mnist", "cnn")
    # They were for the reader of the other data.
    assert task.data_options == {}
    assert "mnist is read from files" in path.read_text()


def test_a_file_that_is_there_stays(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text("mine")
    found = invoke("init", path).exception
    assert isinstance(found, ConfigurationError)
    assert found.key == str(path) and "already exists" in found.problem
    assert path.read_text() == "mine"


@pytest.mark.parametrize(
    ("option", "key", "valid"),
    [
        ("--example", "example", "digits"),
        ("--data", "task.data", "fashion-mnist"),
        ("--model", "task.model", "lenet5"),
    ],
)
def test_a_wrong_name_lists_the_right_ones(
    tmp_path: Path, option: str, key: str, valid: str
) -> None:
    path = tmp_path / "own.toml"
    found = invoke("init", path, option, "nothing").exception
    assert isinstance(found, ConfigurationError)
    assert found.key == key and "nothing" in found.problem and valid in found.valid
    assert not path.exists()
