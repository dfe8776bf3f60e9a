"""Who may know whom: reads every import of the packages."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("secagg", "dp", "sketch", "protocol", "simulations", "veilsum")

# Below everything: they import nothing of ours but one another.
GROUND = ("veilsum.compiled", "veilsum.extras", "veilsum.notices")
# What a package of ours may import of our own.
ALLOWED = {
    "secagg": {"secagg"},
    "dp": {"dp"},
    "sketch": {"sketch"},
    "protocol": {"secagg", "dp", "sketch", "protocol"},
    "simulations": {"secagg", "dp", "sketch", "protocol", "simulations"},
    "veilsum": set(PACKAGES),
}
# The rooms of the two large packages, from the ground up: a room imports from those before it, and
# from itself.
ROOMS = {
    "protocol": (
        "errors",
        "checks",
        "goal",
        "promise",
        "allocation",
        "round",
        "exchange",
        "noise",
        "schemes",
        "planning",
        "training",
        "statistics",
        "authority",
        "adapters",
    ),
    "simulations": (
        "common",
        "learning",
        "audits",
        "threats",
        "bench",
        "reports",
        "campaigns",
        "reproduce",
        "studies",
        "commands",
        "__main__",
    ),
}
CORE = ("secagg", "dp", "sketch", "protocol")
# The caller owns sockets, time and threads; randomness comes from the system or a keystream.
FORBIDDEN_IN_CORE = {"socket", "asyncio", "threading", "time", "random", "logging"}
# Nor does it read a command line: commands are in simulations.
FORBIDDEN_IN_CORE |= {"argparse", "typer"}
# What drives a foreign framework waits for its clients, and tells its operator why one was lost.
CLOCKED = {("protocol", "adapters", name) for name in ("flower", "nvflare", "pfl")}
# What must be counted or answered once, however its host calls it. They take a lock from threading,
# and nothing else: no thread is started below simulations.
LOCKED = {
    ("secagg", "session.py"),
    ("dp", "ledger.py"),
    ("protocol", "round", "one_process.py"),
}
LOCKS = {"threading.Lock", "threading.RLock"}
EXCEPTIONS = {
    # A transport waits for others, and tells the operator of its own side.
    (("protocol", "adapters", "flower", "waiting.py"), "time"),
    (("protocol", "adapters", "flower", "log.py"), "logging"),
    # A site's own process ends a training in time, answers at one moment, and says that it lives.
    (("protocol", "adapters", "flower", "site", "trainer.py"), "time"),
    (("protocol", "adapters", "flower", "site", "serving.py"), "time"),
    (("protocol", "adapters", "flower", "site", "tasks.py"), "threading"),
    # A sandbox is reached by a socket; what an app could reach is tried.
    *(
        (("protocol", "adapters", "flower", "site", f"{name}.py"), "socket")
        for name in ("trainer", "inside", "check", "attempts")
    ),
    (("protocol", "adapters", "flower", "site", "attempts.py"), "time"),
    # Another way to call the command line, which lives in the face above.
    (("simulations", "__main__.py"), "veilsum"),
}
FRAMEWORKS = {"flwr", "nvflare", "pfl", "ray"}


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide who imports whom"
            yield node.module or ""


def test_what_lies_below_everything_imports_nothing_of_ours() -> None:
    for module in GROUND:
        tree = ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text())
        above = set(imports(tree)) - set(GROUND)
        assert not {name.split(".")[0] for name in above} & set(PACKAGES)


def names_from(tree: ast.AST, module: str) -> set[str]:
    """What is imported of a module; the module itself, if it is imported whole."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name == module}
        elif isinstance(node, ast.ImportFrom) and node.module == module:
            found |= {f"{module}.{alias.name}" for alias in node.names}
    return found


def violations(package: str, parts: tuple[str, ...], source: str) -> list[str]:
    tree = ast.parse(source)
    found = []
    for name in imports(tree):
        top = name.split(".")[0]
        excepted = (parts, top) in EXCEPTIONS or (
            parts[:3] in CLOCKED and top in {"time", "logging"}
        )
        if parts in LOCKED and name == "threading":
            excepted = names_from(tree, name) <= LOCKS
        if top in PACKAGES and top not in ALLOWED[package] and not excepted and name not in GROUND:
            found.append(f"imports {name}")
        if package in CORE and top in FORBIDDEN_IN_CORE and not excepted:
            found.append(f"imports {name}")
        if top in FRAMEWORKS and parts[:2] != ("protocol", "adapters"):
            found.append(f"imports {name} outside protocol/adapters")
        may_torch = package in ("simulations", "veilsum") or parts[:2] == ("protocol", "adapters")
        if top == "torch" and not may_torch and parts[-1] != "flatten.py":
            found.append("imports torch")
    for node in ast.walk(tree):
        if (
            package in CORE
            and isinstance(node, ast.Attribute)
            and node.attr == "random"
            and isinstance(node.value, ast.Name)
            and node.value.id in {"np", "numpy"}
        ):
            found.append("touches numpy.random")
    return found


def rooms_above(parts: tuple[str, ...], source: str) -> list[str]:
    """What a module imports from a room that is above its own."""
    order = ROOMS.get(parts[0])
    if order is None or parts[1:] == ("__init__.py",):
        return []
    assert parts[1].removesuffix(".py") in order, f"no room of this name: {parts[1]}"
    own = order.index(parts[1].removesuffix(".py"))
    found = set()
    for name in imports(ast.parse(source)):
        top, _, rest = name.partition(".")
        if top == parts[0] and (not rest or order.index(rest.split(".")[0]) > own):
            found.add(name)
    return sorted(found)


@pytest.mark.parametrize("package", PACKAGES)
def test_modules_import_what_they_may_and_nothing_from_a_room_above(package: str) -> None:
    for path in modules(package):
        parts, source = path.relative_to(ROOT).parts, path.read_text()
        assert violations(package, parts, source) + rooms_above(parts, source) == [], path


@pytest.mark.parametrize(
    ("room", "source"),
    [
        (("protocol", "round"), "from protocol.noise.calibration import calibrate"),
        (("protocol", "exchange"), "import protocol"),
        (("simulations", "common"), "from simulations.learning.run import folder"),
        (("simulations", "bench"), "import simulations.commands.cli"),
    ],
)
def test_an_arrow_upward_is_noticed(room: tuple[str, str], source: str) -> None:
    assert rooms_above((*room, "module.py"), source)


def circles(arrows: dict[str, set[str]]) -> set[str]:
    """The rooms that reach themselves."""
    reached = dict(arrows)
    for _ in arrows:
        reached = {
            room: near.union(*(reached.get(each, set()) for each in near))
            for room, near in reached.items()
        }
    return {room for room, near in reached.items() if room in near}


def rooms_of(package: str) -> dict[str, set[str]]:
    """From each folder and each loose module of a package to those that it imports."""
    arrows: dict[str, set[str]] = {}
    for path in modules(package):
        parts = path.relative_to(ROOT).parts
        if parts[1] == "__init__.py":
            continue
        room = parts[1].removesuffix(".py")
        of_ours = [
            name.split(".") for name in imports(ast.parse(path.read_text())) if name != package
        ]
        near = {names[1] for names in of_ours if names[0] == package}
        arrows.setdefault(room, set()).update(near - {room})
    return arrows


@pytest.mark.parametrize("package", ["secagg", "dp", "sketch"])
def test_rooms_of_a_package_form_no_circle(package: str) -> None:
    assert circles(rooms_of(package)) == set()


def test_a_circle_of_rooms_is_noticed() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == {"b", "c"}


@pytest.mark.parametrize(
    ("package", "source"),
    [
        ("secagg", "import dp"),
        ("dp", "from sketch.hashing import PublicSeed"),
        ("sketch", "import random"),
        ("protocol", "import simulations.commands.cli"),
        ("protocol", "import time"),
        ("protocol", "import torch"),
        ("secagg", "import numpy as np\nx = np.random.default_rng(0)"),
        ("simulations", "import flwr"),
        ("simulations", "import veilsum"),
        ("dp", "import veilsum"),
        ("dp", "from veilsum.mean import private_mean"),
    ],
)
def test_the_rules_catch_what_they_should(package: str, source: str) -> None:
    assert violations(package, (package, "module.py"), source)


@pytest.mark.parametrize(
    ("parts", "source", "found"),
    [
        (("dp", "ledger.py"), "from threading import Lock, RLock", []),
        (("dp", "ledger.py"), "from threading import Lock, Thread", ["imports threading"]),
        (("dp", "ledger.py"), "import threading", ["imports threading"]),
        (
            ("dp", "ledger.py"),
            "from threading import Lock\nimport threading",
            ["imports threading"] * 2,
        ),
        (("dp", "ledger.py"), "import time", ["imports time"]),
        (("dp", "audit.py"), "from threading import Lock", ["imports threading"]),
    ],
)
def test_a_lock_is_all_that_is_taken_and_only_where_it_is_due(
    parts: tuple[str, ...], source: str, found: list[str]
) -> None:
    assert violations(parts[0], parts, source) == found
