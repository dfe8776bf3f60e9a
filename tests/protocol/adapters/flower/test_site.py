"""A site's own process: whatever an app does, one noised vector leaves, at one moment."""

from __future__ import annotations

import hashlib
import io
import os
import socket
import subprocess
import sys
import threading
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml

pytest.importorskip("flwr", reason="flwr is not installed: `make test-flower` brings it")

from flower_doubles import FIRST_NODE, World, flat, model, step_of
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.cli.build import build_fab_from_disk
from flwr.serverapp.strategy import FedAvg
from flwr.supercore.run import RunNotRunningException
from waiting import until

from protocol.adapters.flower import client
from protocol.adapters.flower.arrays import Layout
from protocol.adapters.flower.home import ClientHome
from protocol.adapters.flower.site import inside, tasks
from protocol.adapters.flower.site.check import reached
from protocol.adapters.flower.site.request import Request, expected_bytes, read_arrays, written
from protocol.adapters.flower.site.rules import SiteRules, read_rules
from protocol.adapters.flower.site.serving import Site, Training
from protocol.adapters.flower.site.tasks import Node
from protocol.adapters.flower.site.trainer import Trainer
from protocol.adapters.flower.site.units import Services
from protocol.errors import ConfigurationError, TrainingFailedError
from secagg import LocalProtocolError, ParameterError

EXAMPLE = Path(__file__).parents[4] / "examples" / "flower"
WORDS = "patient-17"
APP = b"an app"
DIGEST = hashlib.sha256(APP).hexdigest()


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


READ = "import sys; data = sys.stdin.buffer.read(); out = sys.stdout.buffer; "
SIZE = expected_bytes(model())
MISBEHAVES: dict[str, str] = {
    "raises": READ + f"raise ValueError('{WORDS}')",
    "says nothing": READ,
    "does not read": "pass",
    "too little": READ + f"out.write(bytes({SIZE - 1}))",
    "trickles": READ + "import time\nwhile True: time.sleep(0.05); out.write(b'0'); out.flush()",
    "too much": READ + f"out.write(bytes({SIZE + 1}))",
    "without an end": READ + "\nwhile True: out.write(bytes(65536))",
    "not a number": READ + f"out.write(b'\\xff' * {SIZE})",
    "sleeps": READ + "import time; time.sleep(60)",
    "closes and sleeps": READ + "import os, time; os.close(1); time.sleep(60)",
    "leaves a child": READ + "import os; os.fork() or __import__('time').sleep(60)",
    "ends": READ + "sys.exit(3)",
    "is killed": READ + "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
}


def rules(code: str = "", **others: Any) -> SiteRules:
    given = {"training_seconds": 4.0, "answer_after_seconds": 6.0, **others}
    return SiteRules(approved_apps=[DIGEST], trainer=python(code) if code else [], **given)


def asked() -> tuple[Message, Context]:
    context = Context(1, 2, {"veilsum.home": "x"}, RecordDict(), {})
    header = client.shown_header("train", "", context)
    return Message(metadata=header, content=RecordDict({"arrays": model()})), context


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Callable[[list[str]], str]]:
    """A socket that starts a command for each connection, as systemd's do."""
    server, started = socket.socket(socket.AF_UNIX), list[subprocess.Popen[bytes]]()

    def serve(command: list[str]) -> None:
        with suppress(OSError):
            while True:
                link, _ = server.accept()
                with link:
                    process = subprocess.Popen(command, stdin=link, stdout=link)  # noqa: S603
                    started.append(process)

    def listen(command: list[str]) -> str:
        server.bind(str(tmp_path / "sandbox"))
        server.listen()
        threading.Thread(target=serve, args=(command,), daemon=True).start()
        return str(tmp_path / "sandbox")

    yield listen
    server.close()
    for each in started:
        each.kill()
        each.wait()


@pytest.mark.parametrize("connected", [False, True], ids=["pipes", "sandbox"])
@pytest.mark.parametrize("how", MISBEHAVES)
def test_whatever_goes_wrong_in_training_is_an_update_of_zeros(
    how: str,
    connected: bool,
    sandbox: Callable[[list[str]], str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    message, context = asked()
    given = rules(MISBEHAVES[how])
    if connected:
        place = sandbox(given.trainer)
        given = given.model_copy(update={"trainer": [], "sandbox": place})
    began, slept = time.monotonic(), list[float]()
    training = Training(given, APP, began, lambda s: slept.append(time.monotonic() + s - began))
    reply = training(message, context)
    took = time.monotonic() - began
    # At one moment, when whatever was started is dead.
    assert training.due and took < 5.0 and abs(slept[0] - 5.0) < 0.5
    (arrays,) = reply.content.array_records.values()
    assert flat(arrays).tolist() == flat(model()).tolist()
    assert list(reply.content) == ["arrays"]
    assert "an update of zeros" in caplog.text and WORDS not in caplog.text


def test_the_trainer_and_its_children_are_dead_afterwards(tmp_path: Path) -> None:
    numbers = tmp_path / "numbers"
    code = (
        READ + f"import os, time; f = open({str(numbers)!r}, 'a'); os.fork(); "
        "f.write(f'{os.getpid()}\\n'); f.flush(); out.write(b'1234'); time.sleep(60)"
    )
    with pytest.raises(TrainingFailedError, match="training"):
        Trainer(python(code), 8.0).run(b"", 4)
    time.sleep(2.0)
    found = [int(line) for line in numbers.read_text().split()]
    assert len(found) == 2
    for number in found:
        # A zombie that nobody waits for any more is dead, too.
        status = Path(f"/proc/{number}/stat")
        assert not status.exists() or status.read_text().split(") ")[1][0] == "Z"


def test_a_large_request_and_a_large_answer_cross(sandbox: Callable[[list[str]], str]) -> None:
    size = 5_000_000
    echo = python(f"import sys; d = sys.stdin.buffer.read({size}); sys.stdout.buffer.write(d)")
    assert Trainer(echo, 30.0).run(bytes(size), size) == bytes(size)
    assert Trainer([], 30.0, sandbox(echo)).run(bytes(size), size) == bytes(size)
    for nowhere in (Trainer(["/nowhere/at/all"], 1.0), Trainer([], 1.0, "/nowhere/at/all")):
        with pytest.raises(TrainingFailedError, match="No such file"):
            nowhere.run(b"", 1)


def test_an_app_that_reads_its_own_output_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read, turns = os.read, iter([True, False, True])

    def raced(descriptor: int, size: int) -> bytes:
        if size == 1 << 16 and next(turns, False):  # and not what starts a process
            raise BlockingIOError
        return read(descriptor, size)

    monkeypatch.setattr(os, "read", raced)
    assert Trainer(python("print('1234', end='')"), 30.0).run(b"", 4) == b"1234"


def test_training_that_trickles_without_a_pause_is_out_of_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = os.read

    def slow(descriptor: int, size: int) -> bytes:
        if size != 1 << 16:  # what starts a process
            return read(descriptor, size)
        time.sleep(0.002)
        return read(descriptor, 1)

    monkeypatch.setattr(os, "read", slow)
    began = time.monotonic()
    with pytest.raises(TrainingFailedError, match="in time"):
        Trainer(python("print('0' * 5000, end='')"), 1.0).run(b"", 5000)
    assert time.monotonic() - began < 8.0


def test_no_array_is_wider_than_what_an_update_is_made_of() -> None:
    """What is finite as a long double may be infinite as a double: training would choose."""
    wide = ArrayRecord({"w": Array(np.zeros(3, np.longdouble))})
    with pytest.raises(ParameterError, match="at most 64 bits"):
        Layout.of(wide)


def test_a_reply_says_nothing_of_when_training_ended(make_world: Callable[..., World]) -> None:
    world = make_world(committee=None)
    short = {"training_seconds": 1.0, "answer_after_seconds": 3.0}
    sites, found = {}, []

    def answer(message: Message, context: Context) -> Message:
        part = int(context.node_config["partition-id"])
        site = sites.setdefault(part, Site(ClientHome(world.home(part)), rules("pass", **short)))
        began, is_due = time.time(), step_of(message) == "upload"
        reply = site.answer(message, context, APP)
        if is_due:
            found.append(reply.metadata.created_at - began)
        return reply

    world.grid.app = answer  # type: ignore[assignment]
    strategy = FedAvg(fraction_evaluate=0.0)
    with world.secure(strategy) as secure:
        strategy.start(grid=secure, initial_arrays=model(), num_rounds=1)
    assert len(found) == len(world.grid.nodes) and not secure.reports[0].lost
    assert max(abs(each - 3.0) for each in found) < 0.9


def test_only_the_process_that_trains_does_without_the_mod() -> None:
    with pytest.raises(LocalProtocolError):
        client.train_unprotected()


class FakeNode(Node):
    """A SuperNode that has one task, and then is away."""

    def __init__(self, pulled: Any) -> None:
        self.pulled, self.pushed, self.told, self.tokens = pulled, [], [], ["token"]
        self._address, self._stop = "nowhere", threading.Event()

    def _token(self) -> str | None:
        if self.tokens:
            return self.tokens.pop()
        self.stop()
        raise OSError("away")

    def _connected(self, interceptor: Any, seconds: float = 0.0) -> Any:
        return SimpleNamespace(close=lambda: None)


@pytest.mark.parametrize(
    ("pulled", "answer", "pushed"),
    [
        (None, lambda *_: "reply", ["reply"]),
        (None, lambda *_: 1 / 0, ["OwnReasons"]),
        (ValueError("no message"), lambda *_: "reply", []),
        (RunNotRunningException(), lambda *_: "reply", []),
    ],
)
def test_a_task_that_fails_costs_no_other(
    monkeypatch: pytest.MonkeyPatch, pulled: Any, answer: Any, pushed: list[str]
) -> None:
    message, context = asked()
    node, sent = FakeNode(pulled), []

    def pull(_: Any) -> Any:
        if pulled is not None:
            raise pulled
        return message, context, None, SimpleNamespace(content=APP)

    monkeypatch.setattr(tasks, "pull_task_input", pull)
    monkeypatch.setattr(tasks, "push_message", lambda _, reply, __: sent.append(reply))
    monkeypatch.setattr(tasks, "push_task_output", lambda *_: None)
    node.serve(answer)
    assert [each if isinstance(each, str) else each.error.reason for each in sent] == pushed


def test_the_trainer_sees_nothing_of_our_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLWR_SECRET", WORDS)
    code = "import os, sys; sys.stdout.write('x' if 'FLWR_SECRET' in os.environ else '-')"
    assert Trainer(python(code), 30.0).run(b"", 1) == b"-"


def site_app(
    world: World, of: Callable[[int], SiteRules], slept: list[float] | None = None
) -> Callable[[Message, Context], Message]:
    """What a SuperNode hands its tasks to: a site for each client."""
    waits = [] if slept is None else slept

    def answer(message: Message, context: Context) -> Message:
        part = int(context.node_config["partition-id"])
        home = ClientHome(world.home(part))
        return Site(home, of(part), waits.append).answer(message, context, APP)

    return answer


# Numbers of the model, a float32 each, 0.5 larger; what stands before them is Flower's.
ADDS = (
    READ + "import numpy as np, msgspec; from flwr.common.serde import recorddict_from_proto; "
    "from flwr.proto.recorddict_pb2 import RecordDict; "
    "got = recorddict_from_proto(RecordDict.FromString(msgspec.msgpack.decode(data)['content'])); "
    "(arrays,) = got.array_records.values(); "
    "out.write(b''.join((a.numpy() + a.numpy().dtype.type(0.5)).tobytes() "
    "for a in arrays.values()))"
)


@pytest.mark.parametrize("kind", [{}, {"committee": None}], ids=["pairwise", "one-shot"])
def test_a_round_has_the_updates_of_all_and_zeros_of_those_that_failed(
    make_world: Callable[..., World], kind: Mapping[str, Any]
) -> None:
    world, slept = make_world(**kind), list[float]()
    failing = 2
    world.grid.app = site_app(  # type: ignore[assignment]
        world,
        lambda part: rules(ADDS if part >= failing else MISBEHAVES["raises"]),
        slept,
    )
    strategy = FedAvg(fraction_evaluate=0.0)
    with world.secure(strategy) as secure:
        result = strategy.start(grid=secure, initial_arrays=model(), num_rounds=1)
    (report,) = secure.reports
    clients = len(world.grid.nodes)
    assert report.survivors == clients and not report.lost
    # Clipped to 1, and a third of them zero.
    share = (clients - failing) / clients
    whole = np.linalg.norm(np.full(flat(model()).size, 0.5))
    expected = share * min(0.5, 0.5 / whole)
    assert abs(np.mean(flat(result.arrays) - flat(model())) - expected) < 0.05
    # Every client encoded at one moment after its model came, and answered at another.
    assert len(slept) == 2 * clients and min(slept) > 0.0
    assert {step for _, step in world.grid.seen} >= {"hello"}


@pytest.mark.parametrize("kind", ["evaluate", "query", "train.mine"])
def test_nothing_but_the_protocol_is_answered(
    make_world: Callable[..., World], kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = make_world(allow_evaluation_in_the_clear=True)
    world.grid.app = site_app(world, lambda _: rules(ADDS))  # type: ignore[assignment]
    message = Message(RecordDict({"arrays": model()}), FIRST_NODE, kind)
    (reply,) = world.grid.send_and_receive([message])
    assert reply.has_error() and "PolicyError" in reply.error.reason


def test_an_app_that_was_not_approved_is_not_even_unpacked(
    make_world: Callable[..., World], caplog: pytest.LogCaptureFixture
) -> None:
    world = make_world()
    other = SiteRules(approved_apps=["0a" * 32])
    world.grid.app = site_app(world, lambda _: other)  # type: ignore[assignment]
    strategy = FedAvg(fraction_evaluate=0.0)
    with world.secure(strategy) as secure:
        strategy.start(grid=secure, initial_arrays=model(), num_rounds=1)
    assert not secure.reports
    assert f"one of SHA-256 {DIGEST}" in caplog.text
    assert {step for _, step in world.grid.seen} == {"hello"}


def test_without_a_site_the_mod_is_the_only_one_that_stands_between(
    make_world: Callable[..., World],
) -> None:
    """The twin: an app of the server's without the mod answers whatever it likes."""
    from flwr.clientapp import ClientApp

    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        told = MetricRecord({"loss": 17.0})
        return Message(RecordDict({"told": told}), reply_to=message)

    world = make_world(app=app)
    (reply,) = world.grid.send_and_receive(
        [Message(RecordDict({"arrays": model()}), FIRST_NODE, "train")]
    )
    assert reply.content["told"]["loss"] == 17.0


def example_app(tmp_path: Path, change: str = "") -> bytes:
    """The example's app, with other code in its training function."""
    folder = tmp_path / "app"
    if not folder.exists():
        subprocess.run(["cp", "-r", str(EXAMPLE), str(folder)], check=True)  # noqa: S603, S607
    path = folder / "digits_app" / "client_app.py"
    path.write_text(
        path.read_text().replace("    arrays = message", f"{change}    arrays = message")
    )
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        return build_fab_from_disk(folder)


def digits() -> ArrayRecord:
    arrays = {"weights": np.zeros((64, 10), np.float32), "bias": np.zeros(10, np.float32)}
    return ArrayRecord({name: Array(value) for name, value in arrays.items()})


def of_example(app: bytes) -> bytes:
    node = {"partition-id": 0, "num-partitions": 3, "veilsum.home": "/secret"}
    run = {"local-epochs": 1, "learning-rate": 0.3}
    context = Context(1, 2, node, RecordDict(), run)
    header = client.shown_header("train", "", context)
    message = Message(metadata=header, content=RecordDict({"arrays": digits()}))
    request = Request.of(app, message, context)
    assert "veilsum.home" not in request.node_config
    return request.write()


INSIDE = [sys.executable, "-P", "-m", inside.__name__]


def ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether it ends by itself."""
    with suppress(subprocess.TimeoutExpired):
        process.wait(120.0)
    return process.poll() is not None


@pytest.mark.parametrize("listens", [False, True], ids=["pipes", "sandbox"])
def test_the_example_trains_inside_whatever_it_prints(tmp_path: Path, listens: bool) -> None:
    pytest.importorskip("sklearn", reason="the example reads scikit-learn's digits")
    app = example_app(tmp_path, "    print('noise' * 1000)\n")
    place = str(tmp_path / "socket") if listens else None
    process = subprocess.Popen([*INSIDE, place]) if place else None  # noqa: S603
    # It is tried again until the process listens.
    data = Trainer([], 120.0, place).run(of_example(app), expected_bytes(digits()))
    assert process is None or (ended(process) and not os.path.exists(str(place)))
    trained = read_arrays(data, digits())
    assert np.abs(trained["weights"].numpy()).max() > 0.01
    again = read_arrays(written(trained, digits()), digits())
    assert np.array_equal(again["weights"].numpy(), trained["weights"].numpy())


def test_training_ends_when_the_site_hangs_up(tmp_path: Path) -> None:
    """And its first process with it, with which a sandbox ends."""
    app = example_app(tmp_path, "    import time; time.sleep(600)\n")
    process = subprocess.Popen([*INSIDE, str(tmp_path / "socket")])  # noqa: S603
    until(lambda: (tmp_path / "socket").exists())
    with pytest.raises(TrainingFailedError, match="in time"):
        Trainer([], 12.0, str(tmp_path / "socket")).run(of_example(app), 100)
    assert ended(process)


def test_without_a_sandbox_everything_is_in_reach(tmp_path: Path) -> None:
    """The twin of `make test-sandbox`."""
    (tmp_path / "identity.key").write_text("00" * 32)
    found = reached(tmp_path, rules())
    # Some kernels have no rings for anybody.
    missed = {name for name, success in found.items() if not success}
    assert len(found) == 15 and missed <= {"rings of the kernel, which make sockets"}
    assert os.listdir(tmp_path) == ["identity.key"]
    echoing = rules("import sys; sys.stdin.buffer.read(); sys.stdout.buffer.write(bytes(16))")
    with pytest.raises(TrainingFailedError, match="what it was given"):
        reached(tmp_path, echoing)


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ({"memory": "8GB"}, "memory"),
        ({"user": "veilsum\nExecStartPre=/bin/true"}, "units"),
        ({"secret": Path("/srv/my secret")}, "units"),
        ({"devices": ["nvidia0"]}, "units"),
        *(({"data": [Path(each)]}, "data") for each in ("/", "/srv", "/run/x", "/srv/home/state")),
        ({"user": "-root"}, "units"),
        ({"data": [Path("/srv/data")], "devices": ["/dev/nvidia0"], "group": "x"}, None),
    ],
)
def test_units_that_cannot_be_meant(given: dict[str, Any], key: str | None) -> None:
    made = partial(Services, Path("/srv/home"), rules(), "127.0.0.1:9094", secret=Path("/srv/s"))
    if key is None:
        assert (
            "\nDeviceAllow=/dev/nvidia0 rw\n" in made(**given).units()["veilsum-sandbox@.service"]
        )
        sandbox = yaml.safe_load(made(**given).compose())["services"]["sandbox"]
        assert sandbox["network_mode"] == "none" and sandbox["read_only"] is True
        return
    with pytest.raises(ConfigurationError) as caught:
        made(**given)
    assert caught.value.key == key


def test_an_app_stays_in_its_folder(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("../outside", "x")
    with pytest.raises(ValueError, match="leaves its folder"):
        inside.unpack(buffer.getvalue(), tmp_path / "app")
    assert not (tmp_path / "outside").exists()


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("", "approved_apps"),
        ('approved_apps = ["0a"]', "approved_apps.0"),
        ("approved_apps = []\ntraining_seconds = 600", "answer_after_seconds"),
        ('approved_apps = []\nsandbox = "socket"', "sandbox"),
        ('approved_apps = []\nsandbox = "/s"\ntrainer = ["true"]', "sandbox"),
        (f'approved_apps = ["{DIGEST}"]\ntrainer = ["/nowhere/at/all"]', "trainer"),
    ],
)
def test_rules_that_cannot_be_meant(tmp_path: Path, text: str, key: str) -> None:
    (tmp_path / "site.toml").write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        read_rules(tmp_path)
    assert caught.value.key == key
