"""The benchmark of rounds on Flower: what it orders, how it counts, and one whole small run.

The whole run needs flwr and ray: `make test-flower` brings both.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from waiting import until

from protocol.errors import ConfigurationError
from protocol.schemes import OneShot
from protocol.schemes.pairwise import pairwise_of
from secagg import Mode
from simulations.bench.flower import FlowerOrder, bench_flower, engine, floor, report
from simulations.bench.flower.engine import System
from simulations.bench.flower.processors import tree_seconds

FOUR = FlowerOrder(clients=4, dim=1000, lost=1, rounds=2)
LARGE = FlowerOrder(clients=50, dim=1_000_000, lost=5)
NEEDS_FLOWER = pytest.mark.skipif(
    importlib.util.find_spec("flwr") is None or importlib.util.find_spec("ray") is None,
    reason="flwr and ray are not installed: `make test-flower` brings them",
)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("clients", 3),
        ("clients", 1001),
        ("lost", 2),
        ("lost", -1),
        ("rounds", 0),
        ("dim", 99),
        ("rate", 0.5),
        ("rate", 11.0),
        ("rate", float("nan")),
    ],
)
def test_orders_out_of_range_are_refused(name: str, value: float) -> None:
    with pytest.raises(ConfigurationError, match=rf"{name}: value {value}; valid: in "):
        dataclasses.replace(FOUR, **{name: value})


@pytest.mark.parametrize("order", [FOUR, LARGE, dataclasses.replace(LARGE, lost=12, clients=100)])
@pytest.mark.parametrize("mode", list(Mode))
def test_our_plan_allows_for_those_that_vanish(order: FlowerOrder, mode: Mode) -> None:
    plan = dataclasses.replace(order, mode=mode).plan()
    assert plan.cohort == order.clients and pairwise_of(plan).mode is mode
    other = dataclasses.replace(order, mode=mode).plan("one-shot")
    assert other.cohort == order.clients and other.scheme == OneShot()
    assert other.minimum_survivors == plan.minimum_survivors
    assert plan.minimum_survivors <= order.survivors
    assert plan.goal.rounds >= order.all_rounds


def test_clients_that_do_not_vanish_add_up_to_the_mean() -> None:
    kept = [each for each in range(LARGE.clients) if not LARGE.vanishes(each)]
    assert len(kept) == LARGE.survivors == 45
    assert LARGE.mean_shift == pytest.approx(sum(map(LARGE.shift, kept)) / 45)
    # Nothing is clipped: an update is that constant in every coordinate.
    assert LARGE.shift(LARGE.clients - 1) * LARGE.dim**0.5 < LARGE.plan().clip_l2


@pytest.mark.parametrize("system", list(System))
def test_a_wrong_model_is_not_reported(system: System) -> None:
    right = LARGE.all_rounds * LARGE.mean_shift
    report._check(system, LARGE, right)
    everybody = sum(map(LARGE.shift, range(LARGE.clients))) / LARGE.clients
    one_round_short = right * (LARGE.all_rounds - 1) / LARGE.all_rounds
    wrong = [0.0, float("nan"), 2 * right, right / 2]
    if system in (System.PLAIN, System.SECAGGPLUS):
        # Without noise, what comes of one round too few or of the wrong clients shows, too.
        wrong += [one_round_short, LARGE.all_rounds * everybody]
    for moved in wrong:
        with pytest.raises(RuntimeError, match=rf"{system.value}: 7 rounds moved the model by"):
            report._check(system, LARGE, moved)


def test_medians_leave_out_the_first_round_and_the_counted_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    per_round = {
        **{System.PLAIN: 1.0, System.OURS: 3.0, System.ONE_SHOT: 2.0},
        System.SECAGGPLUS: 30.0,
    }

    def measured(system: System, order: FlowerOrder, cores: int) -> dict[str, Any]:
        assert cores == 7
        seconds = per_round[system]
        timed = [seconds - 0.5, seconds, seconds + 0.25]
        return {
            "seconds": [100.0, *timed, 200.0],
            "processor_seconds": [9.0, 2.0, 4.0, 3.0, 9.0],
            "stages": [{"hello": 1.0}, *[{"share": 0.5, "input": s - 1.0} for s in timed], {}],
            "moved": order.all_rounds * order.mean_shift,
            "bytes_down": 10.0,
            "bytes_up": 20.0,
            "peak_rss_bytes": 1,
        }

    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object())
    monkeypatch.setattr(report, "measure", measured)
    monkeypatch.setattr(report, "LIBRARIES", ())
    heard = list[str]()
    order = dataclasses.replace(FOUR, rounds=3)
    figures = bench_flower(order, cores=7, sketched=False, progress=heard.append)
    assert [line.split(":")[0] for line in heard] == [
        "plain",
        "ours",
        "ours_one_shot",
        "secaggplus",
    ]
    assert figures["ours_seconds_per_round"] == 3.0
    assert (figures["ours_seconds_fastest"], figures["ours_seconds_slowest"]) == (2.5, 3.25)
    assert figures["ours_seconds_first_round"] == 100.0
    assert figures["ours_processor_seconds"] == 3.0
    assert figures["ours_over_plain"] == 3.0 and figures["secaggplus_over_ours"] == 10.0
    assert figures["ours_one_shot_over_plain"] == 2.0
    assert figures["secaggplus_over_ours_one_shot"] == 15.0
    assert figures["secaggplus_bytes_per_client"] == 30.0
    assert figures["ours_share_seconds"] == 0.5 and figures["ours_input_seconds"] == 2.0
    assert figures["ours_server_alone_seconds"] == 0.5
    assert "ours_hello_seconds" not in figures and "ours_sketched_over_plain" not in figures


def test_limits_count_every_mask_and_every_noise_vector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        floor, "interleaved_seconds", lambda work, _: {name: run_once(work[name]) for name in work}
    )
    figures = floor.floor_figures(FOUR, cores=2)
    assert (
        figures["degree"] == 3
        and figures["threshold"] == pairwise_of(FOUR.plan()).graph(FOUR.plan())[1]
    )
    # In units of one client's four masks: four clients, three self masks, three left behind.
    assert figures["limit_masks_seconds"] == (4 + 6 / 4) / 2
    # Four clients draw what stays and one batch more; nobody else vanished, so nothing goes.
    assert figures["limit_noise_seconds"] == 4 * 2 / 2
    nobody_lost = floor.floor_figures(dataclasses.replace(LARGE, dim=1000, lost=0), cores=1)
    assert nobody_lost["limit_noise_seconds"] == 50 * 4 + 50 * 3
    assert nobody_lost["limit_masks_seconds"] == 50 + 1
    inexact = dataclasses.replace(LARGE, dim=1000, exact_noise=False)
    assert floor.floor_figures(inexact, cores=1)["limit_noise_seconds"] == 50


def run_once(work: Any) -> float:
    work()
    return 1.0


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="only Linux keeps /proc")
def test_processor_time_counts_children_running_and_ended() -> None:
    def worked(seconds: float, then: str) -> str:
        return f"import time\nwhile time.process_time() < {seconds}: pass\n{then}"

    def left(process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None and process.stdout.readline() == "done\n"

    before = tree_seconds(os.getpid())
    subprocess.run([sys.executable, "-c", worked(0.5, "")], check=True)  # noqa: S603
    ended = tree_seconds(os.getpid())
    assert ended - before >= 0.45
    script = worked(0.5, "print('done', flush=True); input()")
    with subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as running:
        left(running)
        assert tree_seconds(os.getpid()) - ended >= 0.45
        assert tree_seconds(running.pid) >= 0.45
        running.communicate("")


def test_without_flower_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ConfigurationError, match=r"flwr is not installed.*flwr\[simulation\]"):
        bench_flower(FOUR, cores=1, sketched=False, progress=print)


def test_a_system_that_fails_says_why(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys; sys.exit('no such cohort')", "x"]
    with pytest.raises(RuntimeError, match="x ended with 1: no such cohort"):
        engine._run(command, tmp_path / "log")


def test_a_system_that_hangs_is_ended_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, marked: str
) -> None:
    monkeypatch.setattr(engine, "SECONDS", 2.0)
    inner = "[sys.executable, '-c', 'import time; time.sleep(600)']"
    script = f"import subprocess, sys; subprocess.run({inner})"
    with pytest.raises(subprocess.TimeoutExpired):
        engine._run([sys.executable, "-c", script, "x"], tmp_path / "log")
    # Killed they are; that the system has cleared them away may take a moment.
    until(lambda: not processes(marked))


@pytest.fixture
def marked(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A mark in the environment of every process that a test starts."""
    mark = f"VEILSUM_TEST_{uuid4().hex}"
    monkeypatch.setenv(mark, "1")
    yield mark


def processes(mark: str) -> list[str]:
    """Commands of running processes with a mark; there is none where Linux does not tell."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        if int(folder.name) == os.getpid():
            continue
        try:
            if mark.encode() in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_text())
        except OSError:
            continue
    return found


@NEEDS_FLOWER
@pytest.mark.slow
def test_a_small_run_of_all_systems(marked: str) -> None:
    arguments = ["--clients", "4", "--dim", "1000", "--lost", "1", "--rounds", "1", "--json"]
    command = [sys.executable, "-m", "simulations", "bench", "flower", *arguments, "--cores", "2"]
    done = subprocess.run(command, capture_output=True, text=True)  # noqa: S603
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    for system in System:
        assert 0.0 < figures[f"{system.value}_seconds_per_round"]
        both = figures[f"{system.value}_bytes_down"] + figures[f"{system.value}_bytes_up"]
        assert figures[f"{system.value}_bytes_per_client"] == both
    # Three of four clients answer: with floats, with packed field elements, with 64-bit integers.
    share, frames = 3 / 4 * FOUR.dim, 3000
    assert 4 * share < figures["plain_bytes_up"] < 4 * share + frames
    bits = figures["bits"]
    assert bits / 8 * share < figures["ours_bytes_up"] < bits / 8 * share + frames
    assert figures["secaggplus_bytes_up"] > 8 * share
    assert figures["ours_sketched_bytes_up"] < figures["ours_bytes_up"]
    for stage in ("advertise", "share", "input", "confirm", "unmask"):
        assert figures[f"ours_{stage}_seconds"] > 0.0
    for stage in ("upload", "check", "sign", "open"):
        assert figures[f"ours_one_shot_{stage}_seconds"] > 0.0
    assert "ours_hello_seconds" not in figures
    assert processes(marked) == []


@NEEDS_FLOWER
def test_bytes_are_counted_where_a_round_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with warnings.catch_warnings():
        # Flower's own imports warn.
        warnings.simplefilter("ignore")
        from simulations.bench.flower.tally import TallyGrid, wire_bytes
    app = importlib.import_module("flwr.app")
    identity = importlib.import_module("flwr.supercore.task_identity").TaskIdentity
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(identity, name, 1)
    requests = [app.Message(app.RecordDict(), node, "train") for node in (5, 6)]
    requests.append(
        app.Message(app.RecordDict({"veilsum": app.ConfigRecord({"step": "x"})}), 5, "train")
    )
    held: dict[str, Any] = {}

    def push(messages: list[Any]) -> list[str]:
        numbers = [uuid4().hex for _ in messages]
        for number, each in zip(numbers, messages, strict=True):
            each.metadata.__dict__["_message_id"] = number
            held[number] = app.Message(app.RecordDict(), reply_to=each)
        return numbers

    def pull(numbers: set[str]) -> list[Any]:
        return [held.pop(number) for number in list(numbers) if number in held]

    inner = SimpleNamespace(push_messages=push, pull_messages=pull, pull_interval=0.0, run="a run")
    grid = TallyGrid(inner)
    assert grid.run == "a run"
    assert len(grid.send_and_receive(requests[:2])) == 2
    assert grid.bytes_down == grid.bytes_up == {}
    grid.counts = True
    replies = grid.send_and_receive(requests)
    assert len(replies) == 3
    assert grid.bytes_down == {
        5: wire_bytes(requests[0]) + wire_bytes(requests[2]),
        6: wire_bytes(requests[1]),
    }
    assert sum(grid.bytes_up.values()) == sum(map(wire_bytes, replies))
    assert list(grid.stages.seconds) == ["train", "x"]
    assert min(grid.stages.seconds.values()) > 0.0
    grid.new_round()
    assert grid.stages.seconds == {}
