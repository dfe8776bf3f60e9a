"""A site's services: systemd units, or a compose file, with the sandbox that training gets.

Each training gets a service of its own: another user, a root of its own that has the programs and
the data and nothing else of this machine, no network, limits. It ends with all its processes when
the site hangs up, and at the latest after the longest time of a training.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from protocol.adapters.flower.site.rules import SiteRules
from protocol.adapters.flower.site.trainer import INSIDE
from protocol.errors import ConfigurationError

SOCKET = "/run/veilsum/sandbox.sock"
_ROOT = "/run/veilsum/root"
_EMPTY = "/run/veilsum/empty"
_SYSTEM = (
    *("/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/localtime"),
    *("/etc/ssl/certs", "/etc/ssl/openssl.cnf"),
)
"""Of the machine's own files, those that programs need."""
_NO_DATA = ("/run", "/var/run", "/dev", "/proc", "/sys", "/tmp", "/scratch")  # noqa: S108
"""Where sockets and other systems are."""


@dataclass(frozen=True, slots=True)
class Services:
    """What they are made of.

    Attributes:
        home: the site's folder.
        rules: in it.
        node: HOST:PORT of the SuperNode's Runtime API.
        secret: file of the SuperNode's secret.
        user: who owns the folder.
        data: files and folders that training may read.
        group: that may read them; everybody has to, if left out.
        devices: that it may use, such as /dev/nvidia0.
        memory: most that it may use, with its files: as systemd and Docker write it.
        image: with veilsum in it, of a compose file.
    """

    home: Path
    rules: SiteRules
    node: str
    secret: Path
    user: str = "veilsum"
    data: Sequence[Path] = ()
    group: str = ""
    devices: Sequence[str] = ()
    memory: str = "8G"
    image: str = "veilsum"

    def __post_init__(self) -> None:
        """Refuse what a unit or a compose file would read as something else."""
        paths = (self.home, self.secret, *self.data, *self.devices, sys.executable, *_programs())
        forms = [
            *(
                (str(each), r"/[\w./+@-]*", "an absolute path of letters, digits, ./+@-_")
                for each in paths
            ),
            (self.node, r"[\w.\[\]:-]+", "HOST:PORT"),
            (self.user, r"[a-z_][a-z0-9_-]*", "a user's name"),
            (self.group, r"([a-z_][a-z0-9_-]*)?", "a group's name"),
            (self.image, r"[\w][\w./:@-]*", "an image's name"),
        ]
        for each, form, valid in forms:
            if not re.fullmatch(form, each):
                raise ConfigurationError("units", f"value {each!r}", valid)
        if not re.fullmatch(r"[1-9][0-9]*[KMGT]", self.memory):
            raise ConfigurationError(
                "memory", f"value {self.memory!r}", "a number and K, M, G or T"
            )
        ours = (self.home, self.secret, Path(SOCKET))
        for place in self.data:
            within = any(place.is_relative_to(each) for each in (*_NO_DATA, self.home))
            if within or any(each.is_relative_to(place) for each in ours):
                valid = "no folder with keys or sockets in it, and none of the system's own"
                raise ConfigurationError("data", f"value {str(place)!r}", valid)

    def units(self) -> dict[str, str]:
        """Text of each unit by its name."""
        return {
            "veilsum-site.service": self._site(),
            "veilsum-sandbox.socket": _SANDBOX_SOCKET.format(
                # Made here, as systemd would close some of them to others.
                places=" ".join(
                    [_EMPTY, *sorted({f"{_ROOT}{Path(p).parent}" for p in self._readable()})]
                ),
                socket=SOCKET,
                user=self.user,
            ),
            "veilsum-sandbox@.service": self._sandbox(),
        }

    def _site(self) -> str:
        command = f"{sys.executable} -P -m veilsum site run"
        command += f" --home {self.home} --node {self.node} --secret {self.secret}"
        return _SITE.format(user=self.user, command=command, home=self.home)

    def _sandbox(self) -> str:
        devices = "".join(f"BindPaths={each}\nDeviceAllow={each} rw\n" for each in self.devices)
        return _SANDBOX.format(
            command=f"{sys.executable} -P -m {INSIDE}",
            seconds=max(1, int(self.rules.training_seconds)),
            root=_ROOT,
            empty=_EMPTY,
            groups=f"SupplementaryGroups={self.group}\n" if self.group else "",
            readable=" ".join(f"-{each}" if each in _SYSTEM else each for each in self._readable()),
            devices=devices,
            memory=self.memory,
        )

    def _readable(self) -> list[str]:
        return [*_SYSTEM, *_programs(), *(str(each) for each in self.data)]

    def compose(self) -> str:
        """Text of a compose file; its site uses the socket that its sandbox listens on."""
        data = "".join(f"\n      - {each}:{each}:ro" for each in self.data)
        devices = "".join(f"\n      - {each}" for each in self.devices)
        return _COMPOSE.format(
            image=self.image,
            home=self.home,
            node=self.node,
            secret=self.secret,
            folder=Path(SOCKET).parent,
            socket=SOCKET,
            inside=INSIDE,
            memory=self.memory.lower(),
            data=data,
            devices=f"\n    devices:{devices}" if devices else "",
            groups=f"\n    group_add: [{self.group}]" if self.group else "",
        )


def _programs() -> list[str]:
    """Where this Python and its packages are, if not among the machine's own."""
    places = {Path(sys.prefix), Path(sys.base_prefix), Path(__file__).parents[4]}
    return [str(p) for p in sorted(places) if not any(p.is_relative_to(each) for each in _SYSTEM)]


_SITE = """\
[Unit]
Description=veilsum: this site's keys, policy and history
Requires=veilsum-sandbox.socket
After=network-online.target veilsum-sandbox.socket
Wants=network-online.target

[Service]
ExecStart={command}
User={user}
Restart=on-failure
RestartSec=5
ProtectSystem=strict
ReadWritePaths={home}
CacheDirectory=veilsum
Environment=NUMBA_CACHE_DIR=/var/cache/veilsum
PrivateTmp=yes
PrivateDevices=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectControlGroups=yes
NoNewPrivileges=yes
CapabilityBoundingSet=
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
LimitCORE=0
MemorySwapMax=0
UMask=0077

[Install]
WantedBy=multi-user.target
"""

_SANDBOX_SOCKET = """\
[Unit]
Description=veilsum: trainings of the apps that this site approves

[Socket]
ListenStream={socket}
SocketUser={user}
SocketMode=0600
DirectoryMode=0755
Accept=yes
MaxConnections=16
ExecStartPre=/bin/mkdir -p {places}

[Install]
WantedBy=sockets.target
"""

_SANDBOX = """\
[Unit]
Description=veilsum: one training
CollectMode=inactive-or-failed

[Service]
ExecStart={command}
StandardInput=socket
StandardOutput=socket
StandardError=null
# Another user each time, and nothing that it leaves behind.
DynamicUser=yes
User=veilsum-%i
{groups}RemoveIPC=yes
KeyringMode=private
# All of it ends with its first process, which ends when the site hangs up.
RuntimeMaxSec={seconds}
KillMode=control-group
KillSignal=SIGKILL
SendSIGKILL=yes
# A root of its own: what is bound into it is all that there is.
RootDirectory={root}
MountAPIVFS=yes
BindReadOnlyPaths={readable}
TemporaryFileSystem=/scratch:rw,mode=1777,nosuid,nodev,size={memory}
TemporaryFileSystem=/dev/shm:rw,mode=1777,nosuid,nodev,size={memory}
# A user like this brings a /tmp on the machine's disk, without a limit.
BindReadOnlyPaths={empty}:/tmp {empty}:/var/tmp
PrivateDevices=yes
{devices}WorkingDirectory=/
Environment=HOME=/scratch TMPDIR=/scratch NUMBA_CACHE_DIR=/scratch/numba USER=trainer
# No network, and no sockets of others: abstract ones belong to a network, too.
PrivateNetwork=yes
IPAddressDeny=any
RestrictAddressFamilies=AF_UNIX
PrivateIPC=yes
PrivateUsers=yes
ProtectProc=invisible
ProcSubset=pid
ProtectHostname=yes
ProtectClock=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
NoNewPrivileges=yes
CapabilityBoundingSet=
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
# Rings of the kernel make sockets of any family, whatever else is said.
SystemCallFilter=~@privileged @keyring userfaultfd io_uring_setup io_uring_enter io_uring_register
SystemCallErrorNumber=EPERM
UMask=0077
LimitCORE=0
TasksMax=1024
MemoryMax={memory}
MemorySwapMax=0
OOMScoreAdjust=1000
OOMPolicy=kill
CPUWeight=20
"""

_COMPOSE = """\
services:
  site:
    image: {image}
    command: [veilsum, site, run, --home, {home}, --node, "{node}", --secret, {secret}]
    user: "2000:2000"
    network_mode: host
    read_only: true
    cap_drop: [ALL]
    security_opt: ["no-new-privileges:true"]
    restart: unless-stopped
    environment: {{NUMBA_CACHE_DIR: /tmp/numba}}
    tmpfs: ["/tmp:mode=1777,size=1g"]
    volumes:
      - {home}:{home}
      - {secret}:{secret}:ro
      - sandbox:{folder}
  sandbox:
    # It answers one training, ends, and is started anew, with nothing left of it.
    image: {image}
    command: [python, -P, -m, {inside}, {socket}]
    user: "2001:2000"
    network_mode: none
    read_only: true
    cap_drop: [ALL]
    security_opt: ["no-new-privileges:true"]
    pids_limit: 1024
    mem_limit: {memory}
    memswap_limit: {memory}
    oom_score_adj: 1000{groups}
    restart: always
    environment: {{HOME: /tmp, NUMBA_CACHE_DIR: /tmp/numba, USER: trainer}}
    tmpfs: ["/tmp:mode=1777,size=4g"]{devices}
    volumes:
      - sandbox:{folder}{data}
volumes:
  # Small: it is the one place that trainings of different rounds could share.
  sandbox:
    driver: local
    driver_opts:
      {{type: tmpfs, device: tmpfs, o: "size=64k,nr_inodes=16,mode=0770,uid=2001,gid=2000"}}
"""
