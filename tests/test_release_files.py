"""What services and container engines read agrees with pyproject.toml, make and the commands."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from simulations.commands import cli
from veilsum.ownership import PACKAGES

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MAKEFILE = (ROOT / "Makefile").read_text()
WORKFLOW = ".github/workflows/ci.yml"
HOOKS, SITE, IMAGE = ".pre-commit-config.yaml", ".readthedocs.yaml", "Containerfile"
FORMS = (".github/ISSUE_TEMPLATE/bug.yml", ".github/ISSUE_TEMPLATE/config.yml")
REQUEST, CONSTRAINTS = ".github/pull_request_template.md", "requirements/constraints.txt"
FILES = (".ci/run", WORKFLOW, HOOKS, SITE, IMAGE, *FORMS, REQUEST, CONSTRAINTS)
TEXT = {name: (ROOT / name).read_text() for name in FILES}
YAML: dict[str, Any] = {
    name: yaml.safe_load(text) for name, text in TEXT.items() if Path(name).suffix[:2] == ".y"
}
STEPS = [step for job in YAML[WORKFLOW]["jobs"].values() for step in job["steps"]]
MATRIX = YAML[WORKFLOW]["jobs"]["core"]["strategy"]["matrix"]
CLASSIFIED = set(re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"])))


def planned(*targets: str) -> list[str]:
    """The commands that make would run."""
    command = ["make", "--dry-run", "--no-print-directory", "--directory", str(ROOT), *targets]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    return done.stdout.splitlines()


def test_the_workflow_runs_what_is_run_here() -> None:
    commands = [step["run"] for step in STEPS if "run" in step]
    assert commands == [".ci/run", "make unit", "make dist", "make test-release"]
    assert all(planned(command.removeprefix("make ")) for command in commands[1:])
    assert YAML[WORKFLOW]["env"]["PIP_EXTRA_INDEX_URL"] in TEXT[IMAGE]


def test_every_python_and_system_that_is_claimed_is_tested_and_no_other_is_named() -> None:
    assert set(MATRIX["python"]) == CLASSIFIED
    assert PROJECT["requires-python"] == f">={min(CLASSIFIED)}"
    named = [step["with"]["python-version"] for step in STEPS if "python-version" in str(step)]
    named += [extra["python"] for extra in MATRIX["include"]]
    named += [YAML[SITE]["build"]["tools"]["python"], *re.findall(r"python:([\d.]+)", TEXT[IMAGE])]
    assert len(named) == 6 and set(named) <= CLASSIFIED | {"${{ matrix.python }}"}
    # The job that runs every adapter has a Python that pfl has.
    (above,) = re.findall(r"version_info >= \(3, (\d+)\)", MAKEFILE)
    assert named[0] in {f"3.{minor}" for minor in range(int(above))}
    runners = {*MATRIX["os"], *(extra["os"] for extra in MATRIX["include"])}
    systems = {"ubuntu": "POSIX :: Linux", "macos": "MacOS"}
    tested = {f"Operating System :: {systems[each.partition('-')[0]]}" for each in runners}
    assert tested == {each for each in PROJECT["classifiers"] if "System ::" in each}


@pytest.mark.parametrize("name", [SITE, IMAGE])
def test_an_install_takes_the_tested_versions(name: str) -> None:
    (install,) = re.findall(r"pip install [^#]+?\]\"", TEXT[name])
    (torch,) = re.findall(r"^TORCH \?= (\S+)$", MAKEFILE, re.MULTILINE)
    assert torch in install.split() and f"--constraint {CONSTRAINTS}" in install
    (extras,) = re.findall(r"\.\[([\w,]+)\]", install)
    assert set(extras.split(",")) <= PROJECT["optional-dependencies"].keys()
    assert ("docs" in extras) is (name == SITE)


def test_the_constraints_have_every_requirement_but_torch() -> None:
    lines = re.findall(r"^([^#=\n]+)==(\S+)$", TEXT[CONSTRAINTS], re.MULTILINE)
    pinned = {name.lower().replace("_", "-"): version for name, version in lines}
    extras = PROJECT["optional-dependencies"]
    wanted = sum(
        (extras[extra] for extra in ("cli", "sim", "docs", "dev")), PROJECT["dependencies"]
    )
    asked = {each.name: each.specifier for each in map(Requirement, wanted)}
    assert asked.keys() - pinned.keys() == {"torch", "veilsum"}
    assert all(pinned[name] in asked[name] for name in asked.keys() & pinned.keys())
    installs = planned("--always-make", ".venv/.installed")
    assert sum(f"install --quiet --constraint {CONSTRAINTS} " in line for line in installs) == 2


def test_the_hooks_run_what_make_runs() -> None:
    hooks = [hook["entry"] for repo in YAML[HOOKS]["repos"] for hook in repo["hooks"]]
    done = [re.sub(r" --check| \.$", "", line) for line in planned("lint", "types")]
    assert [entry.removesuffix(" --force-exclude") for entry in hooks] == done[-3:]


def test_the_image_is_made_of_what_is_here_and_starts_our_command() -> None:
    copied = re.findall(r"^COPY (.*) \S+$", TEXT[IMAGE], re.MULTILINE)
    sources = {source for line in copied for source in line.split()}
    assert all((ROOT / source).exists() for source in sources)
    assert {*PACKAGES, "veilsum", "pyproject.toml", PROJECT["readme"]} <= sources
    starts = dict(re.findall(r"^(ENTRYPOINT|CMD) (.*)$", TEXT[IMAGE], re.MULTILINE))
    assert json.loads(starts["ENTRYPOINT"]) == [*PROJECT["scripts"]]
    told = re.findall(r"podman run .*? veilsum (\w+)", TEXT[IMAGE])
    assert told and {*told, *json.loads(starts["CMD"])} <= cli.Commands.verbs.keys()


def test_whoever_reports_a_flaw_is_sent_to_the_security_policy() -> None:
    form, config = (YAML[name] for name in FORMS)
    links = [link["url"] for link in config["contact_links"]]
    links += re.findall(r"\]\((http[^)#]+)", TEXT[FORMS[0]] + TEXT[REQUEST])
    home = PROJECT["urls"]["Homepage"] + "/blob/main/"
    assert {link.removeprefix(home) for link in links} == {"SECURITY.md", "CONTRIBUTING.md"}
    assert "SECURITY.md" in form["body"][0]["attributes"]["value"]
    assert config["blank_issues_enabled"] is False


@pytest.mark.parametrize("name", FILES)
def test_the_archive_has_what_its_own_tests_read(name: str) -> None:
    rules = (ROOT / "MANIFEST.in").read_text().split()
    assert name in rules or name.partition("/")[0] in rules
