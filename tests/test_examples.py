"""The examples do what they say, and their means are the plain ones but for the stated noise."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from scipy import stats

from dp import noise_multiplier_for_epsilon

EXAMPLES = Path(__file__).parents[1] / "examples"
ALPHA = 1e-6
CALIBRATION = 1.05
"""Calibrated noise has a few percent more variance than the Gaussian mechanism's, for rounding and
whole coins."""


def run(name: str) -> str:
    """What an example prints; warnings are errors in it and in the processes that it starts."""
    done = subprocess.run(  # noqa: S603
        [sys.executable, str(EXAMPLES / name)],
        capture_output=True,
        text=True,
        timeout=3000,
        env={**os.environ, "PYTHONWARNINGS": "error"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def load(name: str) -> ModuleType:
    """An example as a module, to read its figures and call its parts."""
    spec = importlib.util.spec_from_file_location(f"examples_{name}", EXAMPLES / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def noise_variance(
    epsilon: float, delta: float, clip: float, survivors: int, colluders: int
) -> float:
    """Variance per coordinate of a mean.

    It is the Gaussian mechanism's on the sum of the honest survivors, and the coins of tolerated
    colluders on top.
    """
    on_sum = (noise_multiplier_for_epsilon(epsilon, delta, 1) * clip) ** 2
    return on_sum * survivors / (survivors - colluders) / survivors**2


@pytest.fixture(scope="module")
def example() -> ModuleType:
    """`custom_transport.py` as a module."""
    return load("custom_transport")


@pytest.fixture(scope="module")
def printed() -> dict[str, str]:
    """What it prints, by what comes before the colon."""
    return dict(re.findall(r"^(.+?): (.*)$", run("custom_transport.py"), re.MULTILINE))


PROVIDES = {
    "dask": {"dask"},
    "flower": {"flwr"},
    "notebook": {"matplotlib", "sklearn", "torch"},
    "nvflare": {"nvflare"},
    "pfl": {"pfl", "torch"},
    "scikit-learn": {"sklearn"},
    "sim": {"matplotlib", "sklearn", "torch"},
}
"""What an extra, or a package, in an example's first lines brings for it to import."""

PARTS = {"nvflare/digits.py": ["nvflare/digits_parts.py"], "pfl/cost.py": ["pfl/digits.py"]}
"""Modules that an example imports from its own folder."""

PROGRAMS = sorted(
    name
    for path in (*EXAMPLES.rglob("*.py"), *EXAMPLES.rglob("*.ipynb"))
    if "_app/" not in (name := str(path.relative_to(EXAMPLES)))
    and name not in PARTS["nvflare/digits.py"]
)


def text_and_code(name: str) -> tuple[str, str]:
    """What an example says of itself, and its code, with that of its own modules."""
    if name.endswith(".ipynb"):
        first, *cells = json.loads((EXAMPLES / name).read_text())["cells"]
        code = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")
        return "".join(first["source"]), code
    code = (EXAMPLES / name).read_text()
    others = (text_and_code(part)[1] for part in PARTS.get(name, []))
    return ast.get_docstring(ast.parse(code)) or "", "\n".join([code, *others])


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_example_names_the_extras_that_it_needs(name: str) -> None:
    text, code = text_and_code(name)
    told = re.search(r"^Needs: veilsum(?:\[(\w+)\])?(?:, ([a-z-]+))?$", text, re.MULTILINE)
    assert told, f"{name} does not say what it needs"
    project = tomllib.loads((EXAMPLES.parent / "pyproject.toml").read_text())["project"]
    assert told[1] is None or told[1] in project["optional-dependencies"]
    given = {package for each in told.groups() if each for package in PROVIDES[each]}
    nodes = list(ast.walk(ast.parse(code)))
    names = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    names |= {a.name for node in nodes if isinstance(node, ast.Import) for a in node.names}
    imported = {each.partition(".")[0] for each in names} & set().union(*PROVIDES.values())
    assert imported <= given, f"{name} also needs {imported - given}"


class TestInProcess:
    """`in_process.py`: forty vectors, no network."""

    def vectors(self) -> np.ndarray:
        return np.random.default_rng(0).normal(0.5, 0.1, size=(40, 100))

    def tolerance(self) -> float:
        variance = CALIBRATION * noise_variance(8.0, 1e-6, 6.0, 40, 2) / 100
        return float(stats.norm.isf(ALPHA / 2) * np.sqrt(variance))

    @pytest.mark.statistical
    def test_the_mean_is_the_plain_one(self) -> None:
        mean, epsilon = map(float, run("in_process.py").split(" at epsilon "))
        assert abs(mean - self.vectors().mean()) < self.tolerance()
        assert 0 < epsilon <= 8.0

    def test_a_mean_over_another_number_of_clients_would_be_noticed(self) -> None:
        """Divided by the 35 that must survive, and not by the 40 that did."""
        assert abs(self.vectors().sum() / 35 / 100 - self.vectors().mean()) > self.tolerance()

    def test_it_is_short(self) -> None:
        assert len((EXAMPLES / "in_process.py").read_text().splitlines()) < 40


@pytest.mark.slow
class TestCustomTransport:
    """`custom_transport.py`: seven processes, one of them killed."""

    def expected(self, example: ModuleType) -> np.ndarray:
        alive = [i for i in range(example.CLIENTS) if i != example.KILLED]
        return np.mean([example.vector(i) for i in alive], axis=0)

    def is_plausible(self, example: ModuleType, mean: np.ndarray) -> bool:
        """Whether the squared error is what noise of the stated size makes it, two-sided."""
        goal, survivors = example.PLAN.goal, example.CLIENTS - 1
        variance = noise_variance(goal.epsilon, goal.delta, 1.0, survivors, 1)
        energy = float(np.sum((mean - self.expected(example)) ** 2)) / variance
        law = stats.chi2(example.DIMENSION)
        return bool(law.ppf(ALPHA / 2) < energy < CALIBRATION * law.isf(ALPHA / 2))

    def test_the_killed_client_is_missing_and_nobody_else(
        self, example: ModuleType, printed: dict[str, str]
    ) -> None:
        assert printed["survivors"] == "0 1 2 4 5"
        assert printed["exit codes of the clients"] == "0 0 0 -9 0 0"
        assert printed[f"client {example.KILLED} is lost at input"] == "the other side is gone"

    @pytest.mark.statistical
    def test_the_mean_is_the_plain_one(self, example: ModuleType, printed: dict[str, str]) -> None:
        mean = np.array(json.loads(printed["mean"]))
        assert mean.shape == (example.DIMENSION,)
        assert self.is_plausible(example, mean)

    def test_wrong_means_would_be_noticed(self, example: ModuleType) -> None:
        """No noise at all, and three standard deviations in every coordinate."""
        plain, goal = self.expected(example), example.PLAN.goal
        deviation = np.sqrt(noise_variance(goal.epsilon, goal.delta, 1.0, 5, 1))
        assert not self.is_plausible(example, plain)
        assert not self.is_plausible(example, plain + 3 * deviation)
        assert self.is_plausible(example, plain + deviation)

    def test_both_sides_count_the_round(self, example: ModuleType, printed: dict[str, str]) -> None:
        """The killed client, which cannot know what became of it, as well."""
        epsilon = float(printed["epsilon"])
        own = printed[f"epsilon in the history of client {example.KILLED}, which sent nothing"]
        assert epsilon == example.PLAN.goal.epsilon
        assert 0 < float(own) == float(printed["spent"]) <= epsilon

    def test_a_frame_that_is_too_long_too_late_or_cut_is_an_error(
        self, example: ModuleType
    ) -> None:
        import socket

        near, far = socket.socketpair()
        with near, far:
            far.sendall((example.LARGEST_FRAME + 1).to_bytes(4, "big"))
            with pytest.raises(OSError, match="a frame of"):
                example.receive(near, 5.0)
            far.sendall((3).to_bytes(4, "big") + b"ab")
            with pytest.raises(TimeoutError):
                example.receive(near, 0.05)
            far.sendall((3).to_bytes(4, "big"))
            far.close()
            with pytest.raises(ConnectionResetError):
                example.receive(near, 5.0)


class TestOneCall:
    """`private_mean.py` and `own_model.py`: what the README and its page show."""

    @pytest.mark.statistical
    def test_the_mean(self) -> None:
        text, found = run("private_mean.py").strip().splitlines()
        vectors = np.random.default_rng(0).normal(0.5, 0.1, size=(40, 100))
        variance = CALIBRATION * noise_variance(8.0, 1e-6, 6.0, 40, 2) / 100
        mean = float(found.removeprefix("mean of all numbers: "))
        assert abs(mean - vectors.mean()) < stats.norm.isf(ALPHA / 2) * np.sqrt(variance)
        assert "mean of 40 vectors of length 100" in text and "at epsilon 8" in text

    @pytest.mark.slow
    def test_the_model(self) -> None:
        pytest.importorskip("torch")
        last = run("own_model.py").strip().splitlines()[-1]
        accuracy = float(last.partition("%")[0])
        # A tenth is guessed; noise and drift leave 92 to 95.
        assert 80.0 < accuracy < 100.0
        assert last.endswith("right after 20 rounds, at epsilon 8, delta 1e-05")
