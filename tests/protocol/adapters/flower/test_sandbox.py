"""The sandbox of the units, on a systemd of its own: nothing is in reach, each line for a reason.

Needs root, systemd and namespaces, and starts an init in a namespace: `make test-sandbox`.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="flwr is not installed: `make test-flower` brings it")

from protocol.adapters.flower.site.rules import SiteRules
from protocol.adapters.flower.site.units import SOCKET, Services

INIT = "/lib/systemd/systemd"
MISSING = [each for each in ("unshare", "nsenter", INIT) if shutil.which(each) is None]
pytestmark = pytest.mark.skipif(
    os.environ.get("VEILSUM_SANDBOX") != "1" or os.geteuid() != 0 or bool(MISSING),
    reason=f"`make test-sandbox` as root runs it; missing here: {MISSING}",
)
HOME = Path("/srv/veilsum")
BOOT = f"""
set -e
mount --make-rprivate /
cd "$1"
mount -t tmpfs tmpfs .
cd "$1"
mkdir upper work root
# Whatever an init does to a machine, it does to this layer.
mount -t overlay -o lowerdir=/,upperdir=upper,workdir=work overlay root
mount --rbind /dev root/dev
mount -t proc proc root/proc
mount --bind root/proc/sys root/proc/sys
mount -o remount,bind,ro root/proc/sys
mount -t sysfs -o ro sysfs root/sys
mount -t cgroup2 cgroup2 root/sys/fs/cgroup
mount -t tmpfs tmpfs root/run
chmod 755 root/root
mkdir -p root/run/systemd/system root/run/lock root{HOME}
for each in nothing basic sysinit; do
    printf '[Unit]\nDescription=nothing\n' > root/run/systemd/system/$each.target
done
mount --bind "$2" root{HOME}
cd root
pivot_root . mnt
umount -l /mnt
export container=other
exec {INIT} --system --unit=nothing.target --log-target=null --show-status=no
"""
Inside = Callable[..., "subprocess.CompletedProcess[str]"]
NETWORK = ["PrivateNetwork", "IPAddressDeny", "RestrictAddressFamilies"]
ROOT = ["RootDirectory", "MountAPIVFS", "BindReadOnlyPaths", "TemporaryFileSystem"]
USER = ["DynamicUser", "User", "PrivateUsers", "RemoveIPC", "CapabilityBoundingSet"]
WITHOUT: dict[str, tuple[list[str], set[str]]] = {
    "nothing": ([], set()),
    "network": (
        NETWORK,
        {"a port of this machine", "an abstract socket of this machine", "a network interface"},
    ),
    "root": (ROOT, {"a file in /dev/shm", "a file of an earlier training", "a folder on a disk"}),
    "user": (USER, {"the site's user"}),
    "root and user": (
        [*ROOT, *USER, "ProtectProc", "ProcSubset"],
        {
            "a socket of this machine",
            "the identity key",
            "the names of the site's files",
            "a file in /tmp",
            "the site's process",
            "the packages that trainings run",
        },
    ),
    "filters": (["SystemCallFilter"], {"rings of the kernel, which make sockets"}),
    "end of all": (["KillMode", *NETWORK], {"a process of an earlier training"}),
}
"""Settings that are taken out, and what is in reach without them."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site's folder, which is HOME inside."""
    asked = ["clients=3", "epsilon=4", "delta=1e-6", "rounds=2", "clip-l2=1"]
    asked += ["minimum-survivors=3", "tolerated-colluders=1"]
    folder = tmp_path_factory.mktemp("network")
    words = [sys.executable, "-m", "veilsum", "provision", "network", f"--out={folder}"]
    subprocess.run([*words, *(f"--{each}" for each in asked)], check=True)  # noqa: S603
    home = min(each.parent for each in folder.glob("*/identity.key"))
    (home / "site.toml").write_text(f'approved_apps = []\nsandbox = "{SOCKET}"\n')
    (home / "secret").write_bytes(b"secret")
    (home / "secret").chmod(0o600)
    return home


@pytest.fixture(scope="module")
def inside(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inside]:
    """Runs a command where a systemd of its own is the init."""
    spaces = ("--pid", "--fork", "--mount", "--uts", "--ipc", "--cgroup")
    layer = tmp_path_factory.mktemp("layer")
    outer = subprocess.Popen(  # noqa: S603
        [  # noqa: S607
            "unshare",
            *spaces,
            "bash",
            "-c",
            BOOT,
            "boot",
            str(layer),
            str(home),
        ],
        stdout=subprocess.DEVNULL,
    )
    children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children")
    while not (init := children.read_text().strip()):
        assert outer.poll() is None, "no namespaces"
        time.sleep(0.05)

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        entered = ("nsenter", "-t", init, "-m", "-p", "-i", "-u", "--", *command)
        return subprocess.run(entered, capture_output=True, text=True, timeout=120)  # noqa: S603

    try:
        for _ in range(200):
            if run("systemctl", "is-active", "nothing.target").stdout.strip() == "active":
                break
            assert outer.poll() is None, "no systemd came up"
            time.sleep(0.1)
        yield run
    finally:
        with suppress(ProcessLookupError):
            os.kill(int(init), signal.SIGKILL)
        outer.wait()


def installed(inside: Inside, home: Path, without: list[str], seconds: float = 60.0) -> None:
    """Start the sandbox of the units, but for these settings."""
    rules = SiteRules(approved_apps=[], training_seconds=seconds)
    services = Services(HOME, rules, "127.0.0.1:1", HOME / "secret", user="root")
    for name, text in services.units().items():
        if "KillMode" in without:
            text = text.replace("[Service]\n", "[Service]\nKillMode=process\n")
        lines = [
            line
            for line in text.splitlines()
            if line.partition("=")[0] not in without or line == "KillMode=process"
        ]
        (home / name).write_text("\n".join(lines) + "\n")
        inside("cp", str(HOME / name), "/run/systemd/system/")
    inside("systemctl", "stop", "veilsum-sandbox.socket")
    inside("systemctl", "daemon-reload")
    started = inside("systemctl", "start", "veilsum-sandbox.socket")
    assert started.returncode == 0, started.stderr


@pytest.mark.parametrize("what", WITHOUT)
def test_nothing_is_in_reach_and_each_setting_has_its_reason(
    inside: Inside, home: Path, what: str
) -> None:
    without, reached = WITHOUT[what]
    installed(inside, home, without)
    check = inside(sys.executable, "-P", "-m", "veilsum", "site", "check", "--home", str(HOME))
    lines = check.stdout.splitlines()
    assert len(lines) == 15, check.stderr
    found = {line.split(maxsplit=1)[1] for line in lines if line.startswith("REACHED")}
    assert (found == set()) if not without else (reached <= found), check.stdout
    assert check.returncode == bool(found)


CONNECTED = f"""
import socket, time
link = socket.socket(socket.AF_UNIX)
link.connect("{SOCKET}")
time.sleep(SECONDS)
"""


@pytest.mark.parametrize(
    ("limit", "stays", "least", "most"),
    [(60.0, 3.0, 2.0, 8.0), (3.0, 60.0, 2.0, 8.0)],
    ids=["hangs up", "too long"],
)
def test_a_training_ends_with_the_connection_or_its_time(
    inside: Inside, home: Path, limit: float, stays: float, least: float, most: float
) -> None:
    """It waits for the rest of a request that never comes."""
    installed(inside, home, [], limit)
    (home / "connected.py").write_text(CONNECTED.replace("SECONDS", str(stays)))
    began = time.monotonic()
    inside("systemd-run", sys.executable, str(HOME / "connected.py"))
    while time.monotonic() - began < most:
        alive = "veilsum-sandbox@" in inside("systemctl", "--plain", "list-units").stdout
        if not alive and time.monotonic() - began > 1.0:
            break
        time.sleep(0.1)
    assert not alive and time.monotonic() - began > least


def test_the_site_itself_runs_in_its_unit(inside: Inside, home: Path) -> None:
    """There is no SuperNode, and it says so and waits."""
    installed(inside, home, [])
    log = HOME / "log"
    inside("mkdir", "-p", "/run/systemd/system/veilsum-site.service.d")
    (home / "log.conf").write_text(f"[Service]\nStandardError=file:{log}\n")
    inside("cp", str(HOME / "log.conf"), "/run/systemd/system/veilsum-site.service.d/")
    inside("systemctl", "daemon-reload")
    assert inside("systemctl", "start", "veilsum-site").returncode == 0
    for _ in range(200):
        if "no SuperNode" in (said := inside("cat", str(log)).stdout):
            break
        time.sleep(0.1)
    assert "no SuperNode at 127.0.0.1:1" in said
    assert inside("systemctl", "show", "-P", "NRestarts", "veilsum-site").stdout == "0\n"
    stopped = inside("systemctl", "stop", "veilsum-site")
    result = inside("systemctl", "show", "-P", "Result", "veilsum-site")
    assert stopped.returncode == 0 and result.stdout == "success\n"
