"""The network in containers, as far as a machine without containers can tell.

Its preparation is run. Every path, name and port in it is held against the others, the commands
against Flower's own parsers; and all of its programs run here, with TLS, as plain processes.
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from ipaddress import ip_address
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("flwr", reason="flwr is not installed: `make test-flower` brings it")
pytest.importorskip("yaml", reason="PyYAML is not installed: `make test-flower` brings it")

import yaml
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from flwr.common.config import flatten_dict, parse_config_args
from flwr.superlink.cli.flower_superlink import _parse_args_run_superlink
from flwr.supernode.cli.flower_supernode import _parse_args_run_supernode

from dp import Ledger
from protocol.adapters.flower.home import ClientHome, ClientRules
from protocol.adapters.flower.settings import read_settings
from protocol.planning.training_plan import TrainingPlan

ROOT = Path(__file__).parents[4]
EXAMPLE = ROOT / "examples" / "flower"
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
PACKAGES = ("secagg", "dp", "sketch", "protocol", "simulations", "veilsum")
Compose = dict[str, Any]


def read() -> Compose:
    return yaml.safe_load((EXAMPLE / "compose.yaml").read_text())


def prepare(compose: Compose, folder: Path) -> None:
    """Run what `docker compose run prepare` runs, on a folder in place of `./network`."""
    shell, options, script = compose["services"]["prepare"]["command"]
    subprocess.run(  # noqa: S603
        [shell, options, script.replace("/network", str(folder))],
        cwd=EXAMPLE,
        env={**os.environ, "PATH": PATH, "PYTHONPATH": str(ROOT)},
        check=True,
        capture_output=True,
    )


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compose") / "network"
    folder.mkdir()
    prepare(read(), folder)
    found = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    prepare(read(), folder)  # what is there stays as it is
    assert {path: path.read_bytes() for path in found} == found
    return folder


class Service:
    """A service: its command's arguments as Flower reads them, and what its paths are here."""

    def __init__(self, name: str, compose: Compose, network: Path) -> None:
        self.name = name
        self.words = compose["services"][name]["command"]
        self.mounts = {}
        for volume in compose["services"][name].get("volumes", []):
            source, target, *_ = volume.split(":")
            self.mounts[target] = network.parent / source.removeprefix("./")

    def here(self, path: str) -> Path:
        """A path of its container on this machine; of no volume, one that does not exist."""
        for target, source in self.mounts.items():
            if path == target or path.startswith(target + "/"):
                return source / path[len(target) :].lstrip("/")
        return Path("/nowhere") / path.lstrip("/")

    def arguments(self, parser: argparse.ArgumentParser) -> argparse.Namespace:
        """Its arguments by Flower's parser."""
        try:
            return parser.parse_args(self.words[1:])
        except SystemExit:
            raise ValueError(f"{self.name}: {self.words[0]} does not take its arguments") from None


def wrong(compose: Compose, network: Path) -> list[str]:
    """Everything that does not fit."""
    try:
        return list(_wrong(compose, network))
    except (ValueError, InvalidSignature) as error:
        return [f"{type(error).__name__}: {error}"]


def _wrong(compose: Compose, network: Path) -> Iterator[str]:
    services = {name: Service(name, compose, network) for name in compose["services"]}
    for name, service in compose["services"].items():
        build = EXAMPLE / service["build"]["context"]
        if not (build / "pyproject.toml").is_file():
            yield f"{name}: nothing to build in {build}"
        if not (build / service["build"]["dockerfile"]).is_file():
            yield f"{name}: no Dockerfile"
        if service["image"] != compose["x-program"]["image"]:
            yield f"{name}: another image"
        if not set(service.get("depends_on", [])) <= services.keys():
            yield f"{name}: depends on nobody"
        for source in services[name].mounts.values():
            if not source.exists():
                yield f"{name}: no {source.relative_to(network.parent)}"
    link = services["superlink"]
    served = link.arguments(_parse_args_run_superlink())
    yield from _wrong_link(link, served)
    nodes = [each for name, each in services.items() if name.startswith("supernode-")]
    homes = [home for node in nodes for home in _home(node)]
    for node in nodes:
        yield from _wrong_node(node, link, served, network, len(nodes))
    if len(set(homes)) != len(nodes):
        yield "SuperNodes share a folder"
    yield from _wrong_run(services["run"], link, served, network, len(nodes))


def _wrong_link(link: Service, served: argparse.Namespace) -> Iterator[str]:
    if link.words[0] != "flower-superlink" or served.insecure or served.simulation:
        yield "superlink: no SuperLink with TLS"
    if served.host != "0.0.0.0":  # noqa: S104
        yield "superlink: other containers cannot reach it"
    if served.runtime_dependency_install:
        yield "superlink: fetches packages for each run"
    files = [served.ssl_ca_certfile, served.ssl_certfile, served.ssl_keyfile]
    missing = [file for file in files if not file or not link.here(file).is_file()]
    if missing:
        yield f"superlink: no {missing}"
        return
    authority, own = (x509.load_pem_x509_certificate(link.here(f).read_bytes()) for f in files[:2])
    own.verify_directly_issued_by(authority)
    names = own.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    if link.name not in names.get_values_for_type(x509.DNSName):
        yield "superlink: its certificate is for another name"
    if ip_address("127.0.0.1") not in names.get_values_for_type(x509.IPAddress):
        yield "superlink: its own programs would not trust it"


def _home(node: Service) -> list[Path]:
    named = node.arguments(_parse_args_run_supernode()).node_config or ""
    home = parse_config_args([named]).get("veilsum.home")
    return [node.here(str(home))] if home else []


def _wrong_node(
    node: Service, link: Service, served: argparse.Namespace, network: Path, nodes: int
) -> Iterator[str]:
    given = node.arguments(_parse_args_run_supernode())
    config = parse_config_args([given.node_config])
    if node.words[0] != "flower-supernode" or given.insecure:
        yield f"{node.name}: no SuperNode with TLS"
    if given.superlink != f"{link.name}:{served.port}":
        yield f"{node.name}: calls {given.superlink}"
    if not given.root_certificates or node.here(given.root_certificates).read_bytes() != (
        link.here(served.ssl_ca_certfile).read_bytes()
    ):
        yield f"{node.name}: trusts another authority"
    if config.get("num-partitions") != nodes:
        yield f"{node.name}: num-partitions is not {nodes}"
    number = node.name.removeprefix("supernode-")
    if str(config.get("partition-id")) != number:
        yield f"{node.name}: partition-id is not {number}"
    homes = _home(node)
    if not homes or not (homes[0] / "identity.key").is_file():
        yield f"{node.name}: no identity"
    secrets = [path for path in network.rglob("*.key") if path.parent not in homes]
    if any(path.is_relative_to(mount) for path in secrets for mount in node.mounts.values()):
        yield f"{node.name}: sees the keys of others"


def _wrong_run(
    run: Service, link: Service, served: argparse.Namespace, network: Path, nodes: int
) -> Iterator[str]:
    known = tomllib.loads((EXAMPLE / "flwr.toml").read_text())["superlink"]
    name, options = run.words[3], run.words[4:]
    place = known.get(name, {})
    if place.get("address") != f"{link.name}:{served.port}" or place.get("insecure"):
        yield f"run: {name} is not the SuperLink with TLS"
    if not run.here(place.get("root-certificates", "")).is_file():
        yield "run: no certificate to trust"
    app = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    changes = parse_config_args([options[options.index("--run-config") + 1]])
    config = flatten_dict(app)
    if not changes.keys() <= config.keys():
        yield f"run: the app has no {sorted(changes.keys() - config.keys())}"
    settings = read_settings({**config, **changes})
    if not settings.registry or not link.here(settings.registry).is_file():
        yield "run: no registry"
    if not settings.ledger or not link.here(settings.ledger).parent.is_dir():
        yield "run: no place for the ledger"
    if (
        settings.cohort.size != nodes
        or {**config, **changes}["num-server-rounds"] > settings.rounds
    ):
        yield "run: another cohort than there are nodes, or too many rounds"
    for number in range(nodes):
        yield from _refused(ClientHome(network / f"client-{number:03d}").rules, settings.plan())


def _refused(rules: ClientRules, plan: TrainingPlan) -> Iterator[str]:
    """What a client's policy would refuse."""
    goal = plan.goal
    if not (goal.epsilon <= rules.epsilon and goal.delta <= rules.delta):
        yield "clients refuse the budget"
    if goal.rounds > rules.rounds or plan.clip_l2 > rules.clip_l2:
        yield "clients refuse the rounds or the clip bound"
    if plan.minimum_survivors < rules.minimum_survivors:
        yield "clients refuse so few survivors"
    if plan.tolerated_colluders < rules.tolerated_colluders:
        yield "clients expect more colluders"
    if rules.lifetime_seconds and not 0 < plan.lifetime_seconds <= rules.lifetime_seconds:
        yield "clients refuse the lifetime"


def test_everything_in_it_fits(network: Path) -> None:
    assert wrong(read(), network) == []


def swapped(service: str, old: str, new: str) -> Callable[[Compose], None]:
    """A twin that is broken in the words of a service."""

    def change(compose: Compose) -> None:
        found = compose["services"][service]
        for key in ("command", "volumes"):
            found[key] = [word.replace(old, new) for word in found.get(key, [])]

    return change


@pytest.mark.parametrize(
    ("twin", "said"),
    [
        (swapped("superlink", "--port=8000", "--port=8001"), "calls superlink:8000"),
        (swapped("superlink", "--host=0.0.0.0", "--host=127.0.0.1"), "cannot reach"),
        (swapped("superlink", "--ssl-keyfile=/tls/server.key", "--insecure"), "no SuperLink"),
        (swapped("superlink", "--ssl-certfile=", "--tls-certfile="), "does not take its arguments"),
        (swapped("superlink", "server.crt", "serve.crt"), "no ['/tls/serve.crt']"),
        (swapped("superlink", "network/superlink", "network/link"), "no network/link"),
        (swapped("superlink", ":/ledger", ":/books"), "no place for the ledger"),
        (swapped("superlink", ":/srv/veilsum", ":/srv"), "no registry"),
        (swapped("superlink", "--disable-runtime", "--allow-runtime"), "fetches packages"),
        (swapped("supernode-1", "superlink:8000", "superlnk:8000"), "calls superlnk:8000"),
        (swapped("supernode-1", "--root-certificates=/authority/ca.crt", "--insecure"), "TLS"),
        (swapped("supernode-1", "client-001", "client-000"), "share a folder"),
        (swapped("supernode-1", "./network/client-001", "./network"), "keys of others"),
        (swapped("supernode-1", 'veilsum.home="/srv/veilsum"', ""), "no identity"),
        (swapped("supernode-1", ":/srv/veilsum", ":/srv/vailsum"), "no identity"),
        (swapped("supernode-1", "partition-id=1", "partition-id=0"), "partition-id is not 1"),
        (swapped("supernode-1", "num-partitions=5", "num-partitions=4"), "num-partitions is not 5"),
        (swapped("supernode-1", "--node-config", "--nodeconfig"), "does not take its arguments"),
        (swapped("run", "compose", "local"), "local is not the SuperLink"),
        (swapped("run", "/authority:ro", "/ca:ro"), "no certificate"),
        (swapped("run", "epsilon=50.0", "epsilon=60.0"), "refuse the budget"),
        (swapped("run", "clip-l2=1.0", "clip-l2=2.0"), "refuse the rounds or the clip"),
        (swapped("run", "veilsum.rounds=3", "veilsum.rounds=4"), "refuse the rounds"),
        (swapped("run", "tolerated-dropouts=1", "tolerated-dropouts=2"), "few survivors"),
        (swapped("run", "cohort.size=5", "cohort.size=6"), "another cohort"),
        (swapped("run", "num-server-rounds=3", "num-server-rounds=4"), "too many rounds"),
        (swapped("run", "veilsum.registry", "veilsum.regstry"), "regstry: unknown key"),
        (swapped("run", "num-server-rounds", "num-rounds"), "the app has no ['num-rounds']"),
        (lambda compose: compose["services"].pop("supernode-4"), "num-partitions is not 4"),
        (lambda compose: compose["services"]["run"].update(depends_on=["link"]), "on nobody"),
        (lambda compose: compose["services"]["run"].update(image="other"), "another image"),
    ],
)
def test_broken_twins_are_noticed(
    network: Path, twin: Callable[[Compose], None], said: str
) -> None:
    compose = copy.deepcopy(read())
    twin(compose)
    assert said in "; ".join(wrong(compose, network))


def test_a_certificate_of_another_authority_or_name_is_noticed(
    network: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = Path(shutil.copytree(network, tmp_path / "network"))
    module = example("certificates", monkeypatch)
    shutil.rmtree(moved / "superlink")
    (moved / "authority" / "ca.crt").unlink()
    module.main(["--out", str(moved), "--host", "elsewhere"])
    assert wrong(read(), moved) == ["superlink: its certificate is for another name"]
    shutil.copy(network / "authority" / "ca.crt", moved / "authority" / "ca.crt")
    assert "InvalidSignature" in "; ".join(wrong(read(), moved))


def example(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A program of the example as a module."""
    spec = importlib.util.spec_from_file_location(f"flower_{name}", EXAMPLE / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


def test_the_image_has_what_its_programs_need() -> None:
    """Its sources are in the repository, and its commands find the app and the file of `flwr`."""
    lines = (EXAMPLE / "Dockerfile").read_text().splitlines()
    copied = [line.split()[1:] for line in lines if line.startswith("COPY ")]
    assert all((ROOT / source).exists() for source, _ in copied)
    places = {target: ROOT / source for source, target in copied}
    assert (places["/app"] / "certificates.py").is_file()
    assert (places["/app"] / "pyproject.toml").is_file()
    assert places["/flwr/config.toml"] == EXAMPLE / "flwr.toml"
    assert "WORKDIR /app" in lines
    assert any("FLWR_HOME=/flwr" in line for line in lines if line.startswith("ENV "))
    (install,) = [line for line in lines if "pip install" in line]
    assert "/veilsum[cli,flower]" in install
    # What the app says it takes from where Flower is installed.
    assert "scikit-learn" in install


def test_the_image_is_built_of_the_packages_and_of_nobody_s_keys() -> None:
    listed = (EXAMPLE / "Dockerfile.dockerignore").read_text().splitlines()
    rules = [line for line in listed if line and not line.startswith("#")]
    assert rules[0] == "*" and rules[-1] == "examples/flower/network"
    kept = {rule.removeprefix("!") for rule in rules if rule.startswith("!")}
    assert all((ROOT / name).exists() for name in kept)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert {*PACKAGES, "pyproject.toml", project["project"]["readme"], "LICENSE"} <= kept


def test_the_readme_gives_the_commands_of_the_file() -> None:
    said = (EXAMPLE / "compose.yaml").read_text()
    commands = re.findall(r"^#   (\S.*?)(?:  +#.*)?$", said, flags=re.MULTILINE)
    assert "docker compose run --rm prepare" in commands
    readme = (EXAMPLE / "README.md").read_text()
    assert all(command in readme for command in commands)


@pytest.mark.slow
def test_its_programs_train_over_tls_as_plain_processes(
    network: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The very words of the file, with paths and ports of this machine."""
    module = example("network", monkeypatch)
    compose, port = read(), str(module.free_port())
    services = {name: Service(name, compose, network) for name in compose["services"]}

    def words(service: Service, word: str) -> str:
        word = word.replace("0.0.0.0", "127.0.0.1")  # noqa: S104
        word = word.replace("superlink:8000", f"localhost:{port}").replace(
            "--port=8000", f"--port={port}"
        )
        for target, source in [*service.mounts.items(), *services["superlink"].mounts.items()]:
            word = re.sub(rf"(?<=[=\"]){target}(?=/|\"|$)", str(source), word)
        return word

    processes = module.Processes(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    try:
        for name, service in services.items():
            if name.startswith("super"):
                program, *rest = [words(service, word) for word in service.words]
                own = [f"--port={module.free_port()}"] if name != "superlink" else []
                processes.start(name, [module.program(program), *rest, *own])
                if name == "superlink":
                    module.wait_for(int(port))
        home = tmp_path / "flwr"
        home.mkdir()
        settings = (
            (EXAMPLE / "flwr.toml").read_text().replace("superlink:8000", f"localhost:{port}")
        )
        authority = services["run"].here("/authority/ca.crt")
        (home / "config.toml").write_text(settings.replace("/authority/ca.crt", str(authority)))
        program, *rest = [words(services["run"], word) for word in services["run"].words]
        rest = [str(EXAMPLE) if word == "/app" else word for word in rest]
        rest[-1] = rest[-1].replace("num-server-rounds=3", "num-server-rounds=1")
        done = subprocess.run(  # noqa: S603
            [module.program(program), *rest],
            env=module.environment(home),
            capture_output=True,
            text=True,
            timeout=3000,
        )
        printed = done.stdout + done.stderr
        assert processes.ended() == []
    finally:
        processes.stop_all()
    (line,) = [line for line in printed.splitlines() if line.startswith('{"accuracy"')] or [printed]
    report = json.loads(line)
    assert report["survivors"] == [5] and report["lost"] == [[]]
    with Ledger.open(network / "ledger" / "ledger.jsonl") as ledger:
        assert len(list(ledger.entries())) == 1
