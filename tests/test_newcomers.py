"""What a newcomer gets wrong first: each error says what is valid, and that is then done."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from typer.testing import CliRunner

import veilsum
from protocol.errors import ConfigurationError
from secagg import ParameterError
from simulations.commands import cli

torch = pytest.importorskip("torch")

ROWS = np.random.default_rng(0).normal(0.0, 0.1, size=(20, 3))
HOLED = np.where(np.arange(60).reshape(20, 3) == 7, np.nan, ROWS)
LOADER = torch.utils.data.DataLoader(torch.tensor(ROWS), batch_size=4)
RUN = {
    "seed": 1, "rounds": 1, "engine": {"aggregator": "plain"},
    "task": {"population": 24, "hidden": 4},
    "local": {"learning_rate": 0.1, "steps": 1}, "server": {"learning_rate": 1.0},
    "privacy": {"epsilon": 30.0, "delta": 1e-5, "clip_l2": 0.25},
    "cohort": {"size": 12, "tolerated_dropouts": 1, "tolerated_colluders": 1},
}  # fmt: skip
FEW = {"tolerated_dropouts": 0, "tolerated_colluders": 2}


def mean(vectors: Any = ROWS, **given: Any) -> Any:
    return veilsum.private_mean(vectors, **{"epsilon": 8.0, **given})


def train(labels: Any) -> None:
    clients = [(np.float32(ROWS), labels)] * 20
    model = torch.nn.Linear(3, 2)
    veilsum.private_training(model, clients, epsilon=30.0, rounds=1, progress=False)


def run(folder: Path, *words: str, out: str = "out", **tables: Any) -> None:
    (folder / "run.toml").write_text(tomli_w.dumps({**RUN, **tables}))
    given = ["run", str(folder / "run.toml"), "--quiet", "--out", str(folder / out), *words]
    if error := CliRunner().invoke(cli.app, given).exception:
        raise error


def run_among_strangers(folder: Path) -> None:
    (folder / "out").mkdir()
    (folder / "out" / "thesis.tex").touch()
    run(folder)


def go_on_as_another_run(folder: Path) -> None:
    run(folder)
    run(folder, "--set", "rounds=2")


def train_without_torch(_: Path) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(sys.modules, "torch", None)
        veilsum.private_training(None, [], epsilon=1.0)


def has_torch(extra: str) -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    assert any(each.startswith("torch>") for each in project["optional-dependencies"][extra])


# What is done wrong in a folder; the error that it ends in, and what that says, with a group for
# each part of the remedy; and what is done in the same folder with these parts.
MISTAKES: dict[str, tuple[Callable[[Path], Any], type[Exception], str, Callable[..., Any]]] = {
    "an unknown key": (
        lambda at: run(at, round=2),
        ConfigurationError, r"round: unknown key; valid: .*\b(rounds)\b",
        lambda at, key: run(at, **{key: 2}),
    ),
    "an unknown scheme": (
        lambda _: mean(scheme="secagg"),
        ParameterError, r"scheme = .*'secagg'.*: must be one of (\S+), (\S+),",
        lambda _, *names: [mean(scheme=name) for name in names],
    ),
    "an epsilon that no noise meets": (
        lambda _: mean(epsilon=1e-5),
        ParameterError, r"epsilon = 1e-05: must be .* all else unchanged: epsilon = (\S+)",
        lambda _, epsilon: mean(epsilon=float(epsilon)),
    ),
    "too few clients": (
        lambda at: run(at, cohort=FEW | {"size": 2}, engine={"aggregator": "ideal"}),
        ConfigurationError, r"cohort\.size: value 2; valid: at least (\d+), with 2 colluders",
        lambda at, size: run(at, cohort=FEW | {"size": int(size)}, engine={"aggregator": "ideal"}),
    ),
    "complex vectors": (
        lambda _: mean(ROWS + 1j * ROWS),
        ParameterError, r"vectors = 'complex': .*, (real) and (imag)inary parts apart",
        lambda _, *parts: mean(np.hstack([getattr(ROWS + 1j * ROWS, part) for part in parts])),
    ),
    "a NaN": (
        lambda _: mean(HOLED),
        ParameterError, r"vectors\[(\d+)\] = 'with a NaN",
        lambda _, place: mean(np.delete(HOLED, int(place), axis=0)),
    ),
    "a clip of 0": (
        lambda _: mean(clip_l2=0),
        ParameterError, r"clip_l2 = 0: must be a number in \[(\S+), (\S+)\]",
        lambda _, low, high: mean(clip_l2=np.sqrt(float(low) * float(high))),
    ),
    "a DataLoader of vectors": (
        lambda _: mean(LOADER),
        ParameterError, r"vectors = 'a DataLoader': .*, such as list\(loader\.(dataset)\)",
        lambda _, name: mean(list(getattr(LOADER, name))),
    ),
    "numbers for labels": (
        lambda _: train(ROWS[:, 0]),
        ConfigurationError, r"labels: of float64.* by numpy\.(digitize)\(labels, edges\)",
        lambda _, name: train(getattr(np, name)(ROWS[:, 0], [0.0])),
    ),
    "a missing extra": (
        train_without_torch,
        ModuleNotFoundError, r"needs torch, which comes with the extra \w+: pip .*\[(\w+)\]",
        lambda _, extra: has_torch(extra),
    ),
    "another configuration": (
        go_on_as_another_run,
        ConfigurationError, r"\((rounds): (\d) there, 2 here\); valid: another folder \((--out)\)",
        lambda at, key, old, _: [run(at, "--set", f"{key}={old}"), run(at, out="other", rounds=2)],
    ),
    "a folder of something else": (
        run_among_strangers,
        ConfigurationError, r"holds thesis\.tex and no config\.toml; valid: an (empty) folder",
        lambda at, words: run(at, out=words),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_mended_by_what_its_error_says(name: str, tmp_path: Path) -> None:
    wrong, kind, said, right = MISTAKES[name]
    with pytest.raises(kind) as caught:
        wrong(tmp_path)
    told = re.search(said, str(caught.value))
    assert told, caught.value
    right(tmp_path, *told.groups())
