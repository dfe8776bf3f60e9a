"""`veilsum stats`: errors beforehand, answers, pictures, and which key of a file is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import invoke, run_json

from protocol.errors import ConfigurationError

TOML = """
data = "people.csv"
client = "who"
epsilon = 20.0
[[question]]
kind = "histogram"
name = "age"
bins = 4
range = [0, 80]
[[question]]
kind = "count"
name = "smokes"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    lines = [f"p{index % 50},{20 + index % 50},{index % 2}" for index in range(60)]
    (tmp_path / "people.csv").write_text("\n".join(["who,age,smokes", *lines]))
    path = tmp_path / "survey.toml"
    path.write_text(TOML)
    return path


def test_the_command_plans_runs_and_draws(file: Path, tmp_path: Path) -> None:
    planned = run_json("stats", "plan", str(file))
    assert planned["clients"] == 50
    done = run_json("stats", "run", str(file))
    assert done["survivors"] == 50
    assert done["spent"] <= done["epsilon"] == 20.0
    answers = {each["name"]: each for each in done["answers"]}
    errors = [row["standard_error"] for row in planned["rows"] if row["question"] == "age"]
    measured = answers["age"]["estimate"]["standard_error"]
    assert measured == pytest.approx(errors[:4], rel=0.15)
    assert "errors to expect" in invoke("stats", "plan", str(file)).stdout
    assert "95 % interval" in invoke("stats", "run", str(file)).stdout
    shown = invoke("stats", "show", str(file.with_suffix(".json"))).stdout.strip()
    assert Path(shown).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ('"people.csv"', '"nobody.csv"', "data"),
        ('"who"', '"whom"', "client"),
        ('"smokes"', '"smoke"', "column of 'smoke'"),
        ('"count"', '"median"', "kind"),
        ("epsilon = 20.0", "epsilon = -1.0", "epsilon"),
        ("bins = 4", "bins = 0", "bins"),
        ("bins = 4", "beans = 4", "beans"),
        ("client =", "clients =", "clients"),
    ],
)
def test_the_command_names_the_key_that_is_wrong(file: Path, old: str, new: str, key: str) -> None:
    file.write_text(TOML.replace(old, new, 1))
    refused = invoke("stats", "plan", str(file)).exception
    assert isinstance(refused, ConfigurationError)
    assert str(refused).startswith(key)


def test_files_that_hold_no_answers_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "answers.json"
    for text in ("", "{}", json.dumps({"answers": [{}]})):
        path.write_text(text)
        assert isinstance(invoke("stats", "show", str(path)).exception, ConfigurationError)
    (tmp_path / "table.csv").write_text("a,b\n1\n")
    (tmp_path / "s.toml").write_text(TOML.replace("people", "table"))
    refused = invoke("stats", "plan", str(tmp_path / "s.toml")).exception
    assert "line 2" in str(refused)
