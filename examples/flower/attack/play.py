"""A Flower network of sites under attack, on this machine, and one table of what came of it.

Needs: veilsum[flower]

    python play.py --out /tmp/attack --scheme one-shot

A SuperLink, five SuperNodes and their sites (`veilsum site run`), with signed rounds and a signed
registry. One site is killed at every step of a round, and started again. The app misbehaves at
another. A third is revoked between two rounds. Then the SuperLink runs what it should not: plain
messages, rounds that nobody or a stranger signed, an older registry, an app that nobody approved.

The goal is so large that a sum says how many updates are in it: this is about who takes part, and
no example of privacy. All sites run as one user here, so nothing is said of the sandbox
(`make test-sandbox` is about that).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from threading import Thread
from typing import Any

from flwr.cli.build import build_fab_from_disk

from protocol.adapters.flower.record import Step

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from attack_app.client_app import WORDS  # noqa: E402
from network import Network, deployment_settings, environment, program  # noqa: E402

SITES, AWAY = 5, 1
"""Sites that run, and one that is registered only."""
KILLED, HOSTILE, REVOKED = 2, 3, 4
MEMBERS = 4
"""Of the named committee of one-shot rounds, the first sites."""
STEPS = {
    "pairwise": (Step.ADVERTISE, Step.SHARE, Step.INPUT, Step.CONFIRM, Step.UNMASK),
    "one-shot": (Step.UPLOAD, Step.CHECK, Step.SIGN, Step.OPEN),
}
MOMENTS = ("before", "during", "after")
STEP = 0.045
"""Of each of 400 numbers: updates of norm 0.9."""
TRAINING, SETTLING = 20.0, 3.0
"""Seconds that training may take, and those from then to the answer."""
LOST_TASK_SECONDS = 75.0
"""For about a minute a SuperNode waits for a task that was lost, and hands out no other."""
_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    what: str
    found: str
    holds: bool


class Sites(Network):
    """A network with an announcer and a registrar, one of whose sites can be told to die."""

    def __init__(self, out: Path, scheme: str, rounds: int, training: float) -> None:
        goal = {"epsilon": 5000.0, "delta": 1e-5, "rounds": rounds, "clip-l2": 1.0}
        floor = {"minimum-survivors": 3, "tolerated-colluders": 0}
        self.scheme, self.rounds, self._served = scheme, rounds, 0.0
        site = {
            "approved_apps": [digest(app_in(out / "app"))],
            "training_seconds": training,
            "answer_after_seconds": training + SETTLING,
        }
        committee = MEMBERS if scheme == "one-shot" else None
        privacy = goal | floor
        super().__init__(
            out, SITES + AWAY, privacy, committee=committee, site=site, app=out / "app", signed=True
        )

    @property
    def registry(self) -> Path:
        """The registrar's file; the server reads it there."""
        return self.out / "registry.json"

    @property
    def moment(self) -> Path:
        """When the site that can be killed dies next."""
        return self.out / "moment"

    @property
    def answers(self) -> Path:
        """What it answered."""
        return self.out / "answers.txt"

    def _provision(self) -> None:
        super()._provision()
        veilsum(self.out, "provision", "client", "--home", self.out / "stranger")
        self.clients -= AWAY

    def revoke(self, number: int) -> None:
        """Revoke a site, for everybody, and keep the file of before."""
        shutil.copy(self.registry, self.out / "older.json")
        key, site = self.out / "registrar.key", self.home(number).name
        given = ["--key", key, "--registry", self.registry, "--site", site]
        veilsum(self.out, "registry", "revoke", *given)
        for each in range(self.clients):
            copy = self.home(each) / "registry.json.new"
            shutil.copy(self.registry, copy)
            copy.replace(self.home(each) / "registry.json")

    def start_site(self, number: int) -> None:
        """Start a site's process; one of them can be told to die."""
        if number != KILLED:
            super().start_site(number)
            return
        command = [sys.executable, str(HERE / "dying_site.py"), str(self.moment), str(self.answers)]
        command += ["site", "run", "--home", str(self.home(number)), "--same-user"]
        command += ["--node", f"127.0.0.1:{self._ports[number]}"]
        command += ["--secret", str(self.home(number) / "node.secret")]
        self.processes.start(f"site-{number}", command)

    def start_again(self, number: int) -> None:
        """Start a site's process whose last one has died."""
        self.processes.stop(f"site-{number}")
        self.start_site(number)
        self._served = time.monotonic() + LOST_TASK_SECONDS

    def wait_for_sites(self) -> None:
        """Wait until all of them are given tasks."""
        time.sleep(max(0.0, self._served - time.monotonic()))

    def settings(self, **more: Any) -> dict[str, Any]:
        """Of a run."""
        given = deployment_settings(self, SITES, 2)
        given |= {"veilsum.scheme.kind": self.scheme, "veilsum.rounds": self.rounds}
        given |= {"veilsum.privacy.epsilon": 5000.0, "veilsum.privacy.clip-l2": 1.0}
        given |= {"step": STEP, "hostile": HOSTILE}
        given |= {"veilsum.training-seconds": 240.0, "veilsum.stage-seconds": 12.0}
        return given | more

    def charged(self) -> list[int]:
        """Rounds that each site has charged."""
        folders = (self.home(number) / "state" / "answered" for number in range(self.clients))
        return [len(list(folder.glob("*.charged"))) for folder in folders]


def veilsum(out: Path, *given: object) -> None:
    """Run one of veilsum's commands."""
    subprocess.run(  # noqa: S603
        [program("veilsum"), *map(str, given)],
        check=True,
        env=environment(out),
        stdout=subprocess.DEVNULL,
    )


def app_in(folder: Path) -> Path:
    """A copy of the app, and of nothing else that lies beside it."""
    shutil.copytree(HERE / "attack_app", folder / "attack_app", ignore=lambda *_: ["__pycache__"])
    shutil.copy(HERE / "pyproject.toml", folder)
    return folder


def digest(app: Path) -> str:
    """SHA-256 of what `flwr run` sends."""
    return hashlib.sha256(build_fab_from_disk(app)).hexdigest()


def survived(sites: Sites, moments: Sequence[tuple[Step, str]]) -> Iterator[Row]:
    """Rounds in which sites die, misbehave and are revoked."""
    gates, result = sites.out / "gates", sites.out / "rounds.jsonl"
    gates.mkdir()
    more = {"gates": str(gates), "result": str(result), "num-server-rounds": len(moments) + 2}
    training = Thread(target=attempt, args=(sites, sites.settings(**more)), daemon=True)
    training.start()
    last, included = lines(sites, result, training)[0]["model"], 0
    for number in range(1, len(moments) + 3):
        dies = moments[number - 2] if 2 <= number <= len(moments) + 1 else None
        what = "an app misbehaves at one site"
        if dies is not None:
            what = f"a site is killed {dies[1]} {dies[0].value}"
            sites.moment.write_text(f"{dies[0].value} {dies[1]}")
        elif number > 1:
            what = "a site is revoked"
            sites.revoke(REVOKED)
        sites.wait_for_sites()
        (gates / str(number)).touch()
        found = lines(sites, result, training, number)
        if len(found) <= number:
            yield Row(what, "the run ended: see run-0.log", False)
            return
        line = found[number]
        inside = (line["model"] - last) * line["survivors"] / STEP
        last = line["model"]
        updates, here = round(inside), SITES - (number == len(moments) + 2)
        holds = abs(inside - updates) < 0.3 and updates == line["survivors"] - 1
        if dies is None:
            holds &= line["survivors"] == here
        else:
            holds &= line["survivors"] >= here - 1 and not sites.moment.exists()
        included += line["survivors"] == here
        yield Row(what, f"{line['survivors']} of {SITES}, {inside:.2f} updates that trained", holds)
    (gates / str(len(moments) + 3)).touch()
    training.join(60.0)
    spent = sites.charged()
    told = {tuple(line.split()) for line in sites.answers.read_text().splitlines()}
    twice = len(told) - len({question for question, _ in told})
    yield Row("questions that the killed site answered in two ways", str(twice), not twice)
    enough = spent[0] == len(moments) + 2 and spent[KILLED] >= included
    yield Row(f"rounds charged; {included} with the killed site", str(spent), enough)


def lines(sites: Sites, result: Path, training: Thread, number: int = 0) -> list[dict[str, Any]]:
    """What the server wrote after each round, once it has that of a round."""
    end = time.monotonic() + 180.0
    while time.monotonic() < end and training.is_alive():
        for name in sites.processes.ended():
            sites.start_again(int(name.removeprefix("site-")))
        if result.exists() and result.read_text().count("\n") > number:
            break
        time.sleep(0.1)
    return [json.loads(line) for line in result.read_text().splitlines()]


def refused(sites: Sites) -> Iterator[Row]:
    """Runs that no site should take part in."""
    stranger = str(sites.out / "stranger" / "identity.key")
    app, other = sites.app, app_in(sites.out / "other-app")
    with (other / "attack_app" / "client_app.py").open("a") as code:
        code.write("# a change\n")
    older = {"veilsum.registry": str(sites.out / "older.json")}
    if sites.scheme == "one-shot":
        older["veilsum.committee"] = older["veilsum.registry"]
    tries: list[tuple[str, dict[str, Any], Path]] = [
        ("plain messages of all kinds", {"plain": True}, app),
        ("rounds that nobody signed", {"veilsum.announcer": ""}, app),
        ("rounds that a stranger signed", {"veilsum.announcer": stranger}, app),
        ("a cohort with the revoked site", older, app),
        ("an app that nobody approved", {}, other),
    ]
    for what, settings, sent in tries:
        before, sites.app = sites.charged(), sent
        result = sites.out / "result.json"
        result.unlink(missing_ok=True)
        attempt(sites, sites.settings(gates=str(sites.out / "gates"), **settings))
        told = result.read_text() if result.exists() else ""
        spent = sum(sites.charged()) - sum(before)
        answers = (
            told.count("ANSWERED") + told.count('"survivors": ') - told.count('"survivors": 0')
        )
        asked = "refused" in told if "plain" in settings else "model" in told
        found = (
            f"{answers} answers, {spent} rounds charged" if asked else "not asked: see run-N.log"
        )
        yield Row(f"the SuperLink: {what}", found, asked and not answers and not spent)


def attempt(sites: Sites, settings: dict[str, Any]) -> None:
    """Run the app to whatever end, and keep what `flwr run` said."""
    with suppress(RuntimeError, json.JSONDecodeError):
        sites.run(settings, _SECONDS)
    number = len(list(sites.out.glob("run-*.log")))
    (sites.out / "run.log").rename(sites.out / f"run-{number}.log")


def quiet(sites: Sites) -> Iterator[Row]:
    """Whether words of the app are in anybody's log."""
    logs = {path.name: path.read_text(errors="replace") for path in sites.out.rglob("*.log")}
    words = [name for name, text in logs.items() if WORDS in text]
    yield Row(f"of {len(logs)} logs, those with words of the app", str(words or "none"), not words)


def play(
    out: Path,
    scheme: str,
    moments: Sequence[tuple[Step, str]] = (),
    training: float = TRAINING,
) -> list[Row]:
    """All of it, and the table; with every moment at which a site can die, if none is named."""
    moments = moments or [(step, when) for step in STEPS[scheme] for when in MOMENTS]
    rows: list[Row] = []
    with Sites(out, scheme, len(moments) + 8, training) as sites:
        for row in chain(survived(sites, moments), refused(sites), quiet(sites)):
            verdict = "as it should" if row.holds else "NOT AS IT SHOULD"
            print(f"{verdict:18}{row.what}: {row.found}", flush=True)
            rows.append(row)
    return rows


def main() -> None:
    """Play what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="a new folder")
    parser.add_argument("--scheme", choices=tuple(STEPS), default="pairwise")
    what = "that training may take; more on a busy machine, where it counts as failed else"
    parser.add_argument("--training-seconds", type=float, default=TRAINING, help=what)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    rows = play(given.out.resolve(), given.scheme, training=given.training_seconds)
    sys.exit(not all(row.holds for row in rows))


if __name__ == "__main__":
    main()
