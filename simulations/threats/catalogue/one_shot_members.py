"""A67, A68 and A71: what members of a committee do, keep and forget, whatever a server asks for."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any, Final

from protocol import ClientHistory
from protocol.errors import PolicyError
from protocol.round import member_noise
from protocol.round.committee_policy import KEY_SECONDS
from protocol.round.member import MemberPolicy, RoundMember, SealingKeys
from protocol.round.one_process import OneProcess
from protocol.round.parameters import RoundParameters
from protocol.round.stored_sealing import SealingFolder
from secagg import ProtocolError
from secagg.keys import KEY_BYTES, AgreementKey
from secagg.oneshot.messages import decode_upload
from secagg.terms import MAX_LENGTH
from simulations.audits.base import Figures
from simulations.threats.attack import (
    Attack,
    rate,
    refusal,
    refused_with,
    tried,
    twins,
)
from simulations.threats.game.weak_clients import replaced
from simulations.threats.one_shot.opened import read_alone
from simulations.threats.one_shot.returning import (
    MEMBERS,
    SESSION,
    ReturningRun,
    member_policy,
    parameters_of,
    with_noise,
)
from sketch import SketchSpec

# -- A67 ------------------------------------------------------------------------------------------

_LONG: Final = 1 << 28
_WIDE: Final = 2.0**30


class _DrewError(Exception):
    """A member has begun to draw."""


def _parameters(run: ReturningRun, number: int) -> RoundParameters:
    """A round whose noise takes gigabytes, or a table of a million entries."""
    if number % 2:
        return replace(parameters_of(run.plan), sketch=SketchSpec.identity(_LONG))
    return with_noise(run.plan, variance=_WIDE)


def _draws(trials: int, seed: int, **unlimited: Any) -> Figures:
    """How often members begin to draw; the policy is without limits for the twin."""

    def drew(*_: object) -> None:
        raise _DrewError

    sizes = []

    def attempt(number: int) -> bool:
        run = ReturningRun(seed + number)
        policy: MemberPolicy = replace(member_policy(run), **unlimited)
        announcement = run.setup(0, parameters=_parameters(run, number)).announce_to_member(0)
        sizes.append(len(announcement))
        with replaced((member_noise, "sample_law", drew)):
            try:
                run.member(0, policy=policy).add_noise(announcement)
            except _DrewError:
                return True
        return False

    return {**tried(attempt, trials), "announced_bytes": max(sizes)}


# -- A68 ------------------------------------------------------------------------------------------


def _read_later(seed: int, stored: bool) -> bool:
    """A recorded upload, read with all members' machines, long after the server has gone silent."""
    now = 0.0
    run = ReturningRun(seed)
    with TemporaryDirectory() as name:
        folders = [Path(name) / str(j) for j in range(MEMBERS)]
        hosts = [SealingFolder(folder, lambda: now) for folder in folders]
        pairs = list(zip(hosts, run.committees[0], strict=True))
        run.keys[0] = [host.begin(identity, SESSION) for host, identity in pairs]
        setup = run.setup(0)
        context, data = setup.context, run.upload(0, setup)
        upload = decode_upload(data, 0, len(data))
        now += KEY_SECONDS + 1
        for host, keys in zip(hosts, run.keys[0], strict=True):
            # What hosts schedule; nobody asks them for anything.
            host.expire()
            keys.expire(lambda: now)
        found = [keys.key for keys in run.keys[0]]
        if stored:
            files = [path for folder in folders for path in folder.iterdir()]
            found = [AgreementKey(path.read_bytes()[:KEY_BYTES]) for path in files]
    return read_alone(context, upload, dict(enumerate(found))) is not None


def _read(trials: int, seed: int) -> Figures:
    return tried(lambda number: _read_later(seed + number, stored=bool(number % 2)), trials)


# -- A71 ------------------------------------------------------------------------------------------

_PATIENCE_SECONDS: Final = 0.2
"""How long the first thread waits for a second one that has to wait for it."""


def _entered(seed: int) -> tuple[int, Counter[str]]:
    """How many rounds a member enters if a thread announces one while it enters another."""
    run, refusals, uploads = ReturningRun(seed), Counter[str](), list[bytes]()
    announcements = [run.setup(number).announce_to_member(0) for number in (1, 0)]

    def enter(announcement: bytes) -> None:
        try:
            uploads.append(member.add_noise(announcement))
        except (PolicyError, ProtocolError) as error:
            refusals[refusal(error)] += 1

    second = Thread(target=enter, args=(announcements[1],))

    def clock() -> float:
        """The first thread looks at it when it has seen that the member has no round."""
        if second.ident is None:
            second.start()
            second.join(_PATIENCE_SECONDS)
        return 0.0

    who, noise = run.committees[0][0], run.memories[0][0]
    keys = SealingKeys(who, SESSION, key=run.keys[0][0].key, last_second=1.0)
    member = RoundMember(who, keys, member_policy(run), ClientHistory(), clock, noise)
    enter(announcements[0])
    second.join()
    return len(uploads), refusals


def _rounds_at_once(trials: int, seed: int) -> Figures:
    found = [_entered(seed + number) for number in range(trials)]
    refusals = sum((refused for _, refused in found), Counter[str]())
    return {**rate(sum(rounds > 1 for rounds, _ in found), trials), **refused_with(refusals)}


ATTACKS: Final = (
    Attack(
        id="A67",
        promise="P14",
        name="noise without a limit",
        title="No member draws more noise than its own policy allows, however it is asked",
        says="announces, in little more than a kilobyte, vectors or variances for which "
        "members would allocate gigabytes",
        stopped_by="a longest vector and a largest variance in a member's policy; the length of "
        "the parameters",
        refused_with="PolicyError variance",
        run=twins(
            partial(_draws, largest_variance=2.0**24),
            2,
            20,
            largest_length=MAX_LENGTH,
            largest_variance=_WIDE,
        ),
    ),
    Attack(
        id="A68",
        promise="P14",
        name="keys that are never erased",
        title="A server that says nothing more does not keep its members' keys alive",
        says="records uploads, goes silent in the middle of a range of rounds, and seizes the "
        "members' machines later",
        stopped_by="an expiry of each sealing key, after which its owner erases it in memory and "
        "on disk",
        refused_with="LocalProtocolError",
        run=twins(
            _read,
            2,
            20,
            (SealingFolder, "expire", lambda _: 0),
            (SealingKeys, "expire", lambda *_: False),
        ),
    ),
    Attack(
        id="A71",
        promise="P14",
        name="two announcements at once",
        title="A member is in one round, whoever else announces another at the same moment",
        says="announces another round to a member while it enters one",
        stopped_by="a lock around a member's calls, and a mark that it has entered",
        refused_with="LocalProtocolError",
        run=twins(
            _rounds_at_once,
            1,
            20,
            (OneProcess, "__enter__", lambda _: None),
            (OneProcess, "__exit__", lambda *_: None),
        ),
    ),
)
