"""A site's folder and the machine that it answers from: what `veilsum doctor --site` adds."""

from __future__ import annotations

import ctypes
import os
import resource
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from protocol.adapters.flower.home import ClientHome
from protocol.adapters.flower.provision import require_feasible
from protocol.adapters.flower.site.check import reached
from protocol.adapters.flower.site.rules import read_rules
from protocol.adapters.flower.site.status import seen, status_of
from simulations.reports.doctor.findings import Finding, Level

_UNSYNCHRONISED: Final = 5
"""What adjtimex says of a clock that nobody sets (TIME_ERROR)."""
_BACKUP_DAYS: Final = 30
_WRONG, _WARNING = partial(Finding, Level.WRONG), partial(Finding, Level.WARNING)


def examine_site(home: Path) -> Iterator[Finding]:
    """Check a site: its folder, clock, disk, memory, status, policy, and its sandbox.

    A check that fails itself is a finding, too.
    """
    for check in (_folder, _clock, _disk, _memory, _standing, _policy, _sandbox):
        subject, is_well = f"site {check.__name__[1:]}", True
        try:
            for finding in check(home):
                is_well = False
                yield finding
        except Exception as error:
            yield _WRONG(subject, str(error), "see docs/integrations/flower-site.md")
        else:
            if is_well:
                yield Finding(Level.OK, subject, "nothing is wrong with it")


def _folder(home: Path) -> Iterator[Finding]:
    user = os.geteuid()
    for path, others in ((home, "chmod 700"), (home / "identity.key", "chmod 600")):
        if path.stat().st_mode & 0o077:
            yield _WRONG("site folder", f"others may read {path}", f"{others} {path}")
    strangers = [path for path in (home, *home.rglob("*")) if path.lstat().st_uid != user]
    if strangers:
        found = f"{strangers[0]} and {len(strangers) - 1} others are not of user {user}"
        yield _WRONG("site folder", found, f"run this as its user; or chown -R {home}")


def _clock(home: Path) -> Iterator[Finding]:
    ahead = max(path.lstat().st_mtime for path in (home, *home.rglob("*"))) - time.time()
    if ahead > 60.0:
        yield _WRONG("site clock", f"{ahead:.0f} s behind files of this site", "set it")
    if ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(256)) == _UNSYNCHRONISED:
        yield _WARNING("site clock", "nobody sets it", "run chrony or systemd-timesyncd")


def _disk(home: Path) -> Iterator[Finding]:
    with tempfile.TemporaryFile(dir=home) as file:
        os.fsync(file.fileno())
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    above = [each for each in mounts if home.resolve().is_relative_to(each[1])]
    if (kind := max(above, key=lambda each: len(each[1]))[2]) in ("tmpfs", "ramfs"):
        yield _WRONG("site disk", f"{kind}: a restart forgets it", "use a folder on a disk")


def _memory(_: Path) -> Iterator[Finding]:
    more = "; the units that `veilsum site units` writes see to it"
    if Path("/proc/swaps").read_text().splitlines()[1:]:
        yield _WARNING("site memory", "there is swap: keys may be on it", "swapoff -a" + more)
    if resource.getrlimit(resource.RLIMIT_CORE)[0] != 0:
        yield _WARNING("site memory", "a crash may write keys into a file", "ulimit -c 0" + more)


def _standing(home: Path) -> Iterator[Finding]:
    status = status_of(home)
    if status.frozen is not None:
        yield _WARNING("site frozen", status.frozen, "veilsum site unfreeze, when that is over")
    for name, problem in status.problems.items():
        yield _WRONG(f"site {name}", problem)
    if status.goal and status.goal.rounds_left == 0:
        yield _WARNING("site history", "no round of the goal is left", "a new agreement")
    if (days := (time.time() - (status.last_backup or 0)) / (24 * 3600)) > _BACKUP_DAYS:
        found = f"{days:.0f} days old" if status.last_backup else "there is none"
        yield _WARNING("site backup", found, "veilsum site backup")


def _policy(home: Path) -> Iterator[Finding]:
    def look(copy: ClientHome, _: object) -> None:
        everybody = copy.registry | copy.committee
        require_feasible(copy.rules, len(everybody), len(copy.committee))

    seen(home, look)
    yield from ()


def _sandbox(home: Path) -> Iterator[Finding]:
    rules, subject = read_rules(home), "site sandbox"
    if not rules.approved_apps:
        yield _WARNING(subject, "no app may train", "approved_apps in site.toml")
    if not rules.trainer and rules.sandbox is None:
        found = "none: an app would train as this user, who can read the keys"
        yield _WRONG(subject, found, "veilsum site units")
    elif rules.sandbox is not None and not Path(rules.sandbox).is_socket():
        yield _WRONG(subject, f"no socket {rules.sandbox}", "start veilsum-sandbox.socket")
    else:
        for name, success in reached(home, rules).items():
            if success:
                yield _WRONG(subject, f"an app can reach {name}", "veilsum site units")
