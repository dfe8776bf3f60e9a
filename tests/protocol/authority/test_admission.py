"""What a site refuses, and what it remembers of registries and of rounds that it joined."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from protocol.authority.quota import DAY, HOUR, Quota
from protocol.authority.registry import Registry, read_signed, signed
from protocol.authority.session import MAX_ENVELOPE_BYTES, Announcer, Envelope, session_of
from protocol.authority.site import REQUEST_SECONDS, About, Admission, SiteAuthority
from protocol.errors import ConfigurationError, PolicyError
from protocol.goal import PrivacyGoal
from protocol.round.stored_history import StoredHistory
from secagg import Identity, ParameterError, Reason, RemoteProtocolError
from secagg.grinding import CLOCK_SKEW_SECONDS
from secagg.tags import Usage
from tests.doubles.federation import APP, Federation, replaced
from tests.doubles.refused import refused

HASH = bytes(range(32, 64))
GOAL = PrivacyGoal(4.0, 1e-5, 10)
SPENT = (4.0, 1e-5, 10, None)


@dataclass
class World:
    """A federation of two sites, the folder of the first, and what it is asked."""

    federation: Federation
    folder: Path
    own: bytes
    other: bytes
    session: Announcer
    rules: dict[str, Any]
    warnings: list[str] = field(default_factory=list)

    @property
    def site(self) -> SiteAuthority:
        rules = self.federation.rules(**self.rules)
        return SiteAuthority(self.folder, rules, lambda: self.federation.now, self.warnings.append)

    def bring(self) -> None:
        """The operator's own channel."""
        (self.folder / "registry.json").write_bytes(self.federation.path.read_bytes())

    @property
    def about(self) -> About:
        return About(self.session.session_id, HASH, "client")

    def admit(self, **changes: Any) -> Admission:
        values = {"own": self.own, "run": "77", "app": APP, "about": self.about, **changes}
        signed = values.pop("signed", None)
        if signed is None:
            self.session.clients()  # as a cohort is chosen
            signed = self.session.envelope(HASH)
        return self.site.admit(self.site.envelope(signed), **values)

    @property
    def number(self) -> int:
        return read_signed((self.folder / "state/registry/newest.json").read_bytes(), None).number


@pytest.fixture
def world(tmp_path: Path) -> World:
    federation = Federation(tmp_path / "published.json")
    keys = [Identity.generate().public for _ in range(2)]
    federation.enrol("a", keys[0], ["client", "member"])
    federation.enrol("b", keys[1])
    (tmp_path / "site").mkdir()
    made = World(federation, tmp_path / "site", *keys, federation.session(), {})
    made.bring()
    return made


def opened(world: World, place: int, change: Callable[[Any], Any]) -> bytes:
    """A genuine envelope with one part exchanged."""
    parts = list(msgspec.msgpack.decode(world.session.envelope(HASH)))
    parts[place] = change(parts[place])
    return msgspec.msgpack.encode(parts)


def restated(world: World, **changes: Any) -> dict[str, Any]:
    """A statement that its announcer signs itself, of other words."""
    announcer = world.federation.announcer
    genuine = Envelope.read(world.session.envelope(HASH)).statement
    said = msgspec.msgpack.encode(msgspec.structs.replace(genuine, **changes))
    session = replace(world.about, session_id=session_of(said))
    file, issued = world.federation.path.read_bytes(), int(world.federation.now)
    about = announcer.sign(Usage.ANNOUNCE, HASH, b"", issued.to_bytes(8, "little"))
    parts = [said, announcer.sign(Usage.SESSION, said), about, file, b"", issued]
    return {"signed": msgspec.msgpack.encode(parts), "about": session}


def flipped(data: bytes) -> bytes:
    return data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]


def of_another(world: World) -> dict[str, Any]:
    stranger = world.federation.session(key=Identity.generate())
    about = replace(world.about, session_id=stranger.session_id)
    return {"signed": stranger.envelope(HASH), "about": about}


BENT: dict[str, tuple[Callable[[World], dict[str, Any]], object]] = {
    "unsigned": (lambda _: {"signed": b""}, "announcement"),
    "of a stranger": (of_another, "announcer"),
    "no envelope": (lambda _: {"signed": b"\x00"}, Reason.MALFORMED),
    "four parts": (lambda _: {"signed": msgspec.msgpack.encode([b""] * 4)}, Reason.MALFORMED),
    "too long": (lambda _: {"signed": bytes(MAX_ENVELOPE_BYTES + 1)}, Reason.OVERSIZED),
    "no statement": (lambda w: {"signed": opened(w, 0, lambda _: b"\x90")}, Reason.MALFORMED),
    "another version": (lambda w: restated(w, version=2), Reason.MALFORMED),
    "a bit of the statement": (lambda w: {"signed": opened(w, 0, flipped)}, Reason.BAD_SIGNATURE),
    "a bit of its signature": (lambda w: {"signed": opened(w, 1, flipped)}, Reason.BAD_SIGNATURE),
    "a bit of the round's": (lambda w: {"signed": opened(w, 2, flipped)}, Reason.BAD_SIGNATURE),
    "a bit of the registry": (lambda w: {"signed": opened(w, 3, flipped)}, "registry"),
    "another newest": (lambda w: {"signed": opened(w, 4, lambda _: b"{")}, Reason.BAD_SIGNATURE),
    "another time": (lambda w: {"signed": opened(w, 5, lambda t: t + 1)}, Reason.BAD_SIGNATURE),
    "no time": (lambda w: {"signed": opened(w, 5, lambda _: -1)}, Reason.MALFORMED),
    "another round": (
        lambda w: {"about": replace(w.about, signed=bytes(32))},
        Reason.BAD_SIGNATURE,
    ),
    "another session": (lambda w: {"about": replace(w.about, session_id=bytes(16))}, "session_id"),
    "another run": (lambda _: {"run": "78"}, "run"),
    "another app": (lambda _: {"app": bytes(32)}, "app"),
    "another registry": (lambda w: restated(w, registry=bytes(32)), "registry"),
    "an unknown registrar": (
        lambda w: {
            "signed": opened(w, 3, lambda _: signed(w.federation.registry, Identity.generate()))
        },
        "registry",
    ),
    "a site that is not in it": (lambda _: {"own": bytes(32)}, "registry"),
    "a site without that role": (
        lambda w: {"own": w.other, "about": replace(w.about, role="member")},
        "registry",
    ),
}


@pytest.mark.parametrize("how", BENT)
def test_whatever_is_not_genuine_is_refused(world: World, how: str) -> None:
    bend, expected = BENT[how]
    world.admit()
    changes = bend(world)
    if isinstance(expected, Reason):
        with pytest.raises(RemoteProtocolError) as caught:
            world.admit(**changes)
        assert caught.value.reason is expected
    else:
        with refused(PolicyError, str(expected)):
            world.admit(**changes)


def test_what_is_genuine_is_admitted(world: World) -> None:
    admission = world.admit()
    assert admission.clients == {world.own, world.other} and admission.members == {world.own}
    assert world.admit(app=None).clients == admission.clients
    # Two sessions of one announcer differ; a session's own statement is what names it.
    assert world.federation.session().session_id != world.session.session_id
    assert world.admit(**restated(world)).clients == admission.clients
    with pytest.raises(ParameterError, match="app"):
        world.federation.session(app=b"")


def test_a_site_without_a_registry_of_its_own_joins_nothing(world: World) -> None:
    """The first that it knows is not the one that a server brings."""
    (world.folder / "registry.json").unlink()
    with pytest.raises(ConfigurationError, match="No such file"):
        world.admit()
    assert not (world.folder / "state" / "registry" / "newest.json").exists()


def test_a_newer_registry_is_adopted_from_either_channel(world: World) -> None:
    world.admit()
    number = world.number
    world.federation.publish()
    world.session = world.federation.session()
    world.admit()
    assert world.number == number + 1
    world.federation.publish()
    world.bring()
    # The session's is older now, and is still good for it.
    world.admit()
    assert world.number == number + 2


def test_a_revocation_counts_at_once_whatever_the_session_announced(world: World) -> None:
    world.federation.enrol("b", world.other, ["client", "member"])
    world.session = world.federation.session()
    genuine = world.session.envelope(HASH)
    world.federation.revoke("b")
    # Withheld by whoever carries it; brought by the server; known from the operator's channel.
    assert world.admit(signed=genuine).clients == {world.own, world.other}
    assert world.admit().clients == {world.own}
    known = world.admit(signed=genuine)
    assert known.clients == known.members == {world.own}
    # A new key of the same site is in no session that began before.
    world.federation.enrol("b", Identity.generate().public, spent=(0, None))
    assert world.admit().clients == {world.own}
    world.federation.revoke("a")
    with refused(PolicyError, "registry"):
        world.admit()


def test_a_run_goes_on_beyond_the_age_of_its_first_registry(world: World) -> None:
    for _ in range(3):
        world.federation.now += 5 * DAY
        world.federation.publish()
        world.admit()
    assert world.number == world.federation.registry.number


def test_another_federation_of_the_same_registrar_is_not_ours(world: World) -> None:
    """An old number: nothing to adopt, and nothing to be admitted by."""
    registry = world.federation.registry
    world.federation.registry = replaced(
        registry, federation="cd" * 16, number=1, previous="", issued=registry.issued
    )
    world.federation.write()
    world.session = world.federation.session()
    with refused(PolicyError, "registry"):
        world.admit()


def fork_of_one_number(registry: Registry) -> Registry:
    return replaced(registry, expires=registry.expires + 1)


def fork_that_follows(registry: Registry) -> Registry:
    return replaced(registry, number=registry.number + 1, previous="ab" * 32)


def fork_that_came_before(registry: Registry) -> Registry:
    return replaced(registry, number=registry.number - 1)


@pytest.mark.parametrize("fork", [fork_of_one_number, fork_that_follows, fork_that_came_before])
def test_two_registries_that_contradict_each_other_freeze_the_site(
    world: World, fork: Callable[[Registry], Registry]
) -> None:
    world.admit()
    number, genuine, kept = world.number, world.session, world.federation.registry
    world.federation.registry = fork(world.federation.registry)
    world.federation.write()
    world.session = world.federation.session()
    with pytest.raises(ConfigurationError, match="frozen"):
        world.admit()
    forks = sorted((world.folder / "state" / "registry").glob("fork-*"))
    assert len({read_signed(each.read_bytes(), None).digest() for each in forks}) == 2
    world.session = genuine
    world.federation.registry = kept
    world.federation.write()
    for step in (world.admit, world.site.newest, lambda: world.site.earlier(world.own, GOAL)):
        with pytest.raises(ConfigurationError, match="frozen"):
            step()
    # The other file is still about: removing the evidence is not enough, numbers above both are.
    other = forks[0].read_bytes(), forks[1].read_bytes()
    for each in (*forks, world.folder / "state" / "registry" / "newest.json"):
        each.unlink()
    world.federation.publish(number=number + 3)
    world.bring()
    for each in other:
        assert world.site.newest().number == world.site._adopt(each).number == number + 3


BAD: dict[str, Callable[[World], bytes]] = {
    "half of it": lambda w: w.federation.path.read_bytes()[:-40],
    # It would keep out every later file, and freeze: it is of the number that is known.
    "dated ahead": lambda w: signed(
        replaced(w.federation.registry, issued=int(w.federation.now) + DAY), w.federation.registrar
    ),
    "of a stranger": lambda w: signed(w.federation.registry, Identity.generate()),
    "what takes back": lambda w: signed(
        replaced(w.federation.registry, number=9, entries=()), w.federation.registrar
    ),
}


@pytest.mark.parametrize("what", BAD)
@pytest.mark.parametrize("by", ["operator", "server", "session"])
def test_a_bad_file_leaves_what_is_known(world: World, what: str, by: str) -> None:
    """It could as well not have come, unless the session is about it."""
    world.federation.revoke("b")
    world.bring()
    world.admit()
    genuine, number, bad = world.session, world.number, BAD[what](world)
    if by == "operator":
        (world.folder / "registry.json").write_bytes(bad)
    elif by == "server":
        genuine._newest = bad
    else:
        with suppress(ConfigurationError):  # an honest server stops here
            world.session = world.federation.session(read=lambda: bad)
            with pytest.raises((ConfigurationError, PolicyError)):
                world.admit(signed=world.session.envelope(HASH))
    world.session = genuine
    # What was known to be revoked still is.
    assert world.admit(signed=genuine.envelope(HASH)).clients == {world.own}
    assert world.number == world.site.newest().number == number
    assert len(world.warnings) == (by != "session")
    # Where nothing is known it is an error.
    (world.folder / "state/registry/newest.json").unlink()
    (world.folder / "registry.json").write_bytes(bad)
    with pytest.raises((ConfigurationError, PolicyError)):
        world.admit(signed=genuine.envelope(HASH))


def test_a_later_step_does_not_read_the_operator_s_file(world: World) -> None:
    world.admit()
    world.federation.publish()
    world.bring()
    assert world.site.newest().number == world.number == world.federation.registry.number - 1


def test_who_does_not_see_the_cohort_wants_it_chosen_by_what_it_knows(world: World) -> None:
    blind = {"about": replace(world.about, is_blind=True)}
    world.admit(**blind)
    before = world.session.envelope(HASH)
    world.federation.publish()
    world.bring()
    world.admit(signed=before, **blind)  # a newer one that revokes nobody
    world.federation.revoke("b")
    world.bring()
    with refused(PolicyError, "registry"):
        world.admit(signed=before, **blind)
    world.admit(signed=before)  # who sees it looks itself
    world.admit(**blind)  # the server knows it, too


def test_a_request_for_a_sealing_key_has_its_time(world: World) -> None:
    asked, signed = {"about": replace(world.about, role=None)}, world.session.envelope(HASH)
    start = int(world.federation.now)
    for age in (-CLOCK_SKEW_SECONDS - 1, -CLOCK_SKEW_SECONDS, REQUEST_SECONDS, REQUEST_SECONDS + 1):
        world.federation.now = start + age
        late = not -CLOCK_SKEW_SECONDS <= age <= REQUEST_SECONDS
        with refused(PolicyError, "request") if late else nullcontext():
            world.admit(signed=signed, **asked)
    world.admit(signed=signed)


LATE, EXPIRED = 7 * DAY, 30 * DAY
TIMES: dict[str, tuple[float, dict[str, Any], str]] = {
    "at the last moment": (LATE, {}, ""),
    "too old": (LATE + 1, {}, "registry_age"),
    "our clock is a little behind": (-CLOCK_SKEW_SECONDS + 1, {}, ""),
    "from the future": (-CLOCK_SKEW_SECONDS - 1, {}, "by now"),
    "before it expires": (EXPIRED - 1, {"largest_registry_age_seconds": EXPIRED}, ""),
    "expired": (EXPIRED, {"largest_registry_age_seconds": 2 * EXPIRED}, "registry"),
    "no time at all": (float("nan"), {}, "by now"),
}


@pytest.mark.parametrize("when", TIMES)
def test_a_registry_has_its_time(world: World, when: str) -> None:
    later, world.rules, expected = TIMES[when]
    signed = world.session.envelope(HASH)
    world.federation.now = world.federation.registry.issued + later
    if expected == "by now":
        with pytest.raises(ConfigurationError, match=expected):
            world.admit(signed=signed)
    else:
        with refused(PolicyError, expected) if expected else nullcontext():
            world.admit(signed=signed)


def test_the_session_s_own_registry_may_not_have_expired(world: World) -> None:
    world.rules = {"largest_registry_age_seconds": 99 * DAY}
    world.federation.now += 29 * DAY
    world.federation.publish()
    world.bring()
    world.admit()
    world.federation.now += 2 * DAY
    with refused(PolicyError, "registry"):
        world.admit()


START = 1_000_000.0
JOINS: dict[str, tuple[list[float], float, str]] = {
    "none": ([], 0, ""),
    "all of an hour": ([0, 1, 2], 3, "joins_per_hour"),
    "an hour ago": ([0, 1, 2], HOUR, ""),
    "not yet an hour ago": ([0, 1, 2], HOUR - 1, "joins_per_hour"),
    "all of a day": ([0, 1, 2, HOUR, HOUR + 1], 3 * HOUR, "rounds_per_day"),
    "a day ago": ([0, 1, 2, HOUR, HOUR + 1], DAY, ""),
    "a clock put back by a day": ([0, 1, 2], -DAY, "joins_per_hour"),
    "a clock put forward": ([0, 1, 2], 2 * DAY, ""),
}


@pytest.mark.parametrize("case", JOINS)
def test_an_announcer_has_so_many_rounds(tmp_path: Path, case: str) -> None:
    times, now, expected = JOINS[case]
    quota = Quota(tmp_path / "joins" / "a", 3, 5)
    for each in times:
        quota.take(START + each)
    before = quota.path.read_bytes() if times else b""
    if expected:
        with refused(PolicyError, expected):
            quota.take(START + now)
        assert quota.path.read_bytes() == before
    else:
        quota.take(START + now)
    Quota(tmp_path / "joins" / "b", 3, 5).take(START + now)


def test_a_damaged_count_is_no_empty_one(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(7))
    with pytest.raises(ConfigurationError, match="7 bytes"):
        Quota(tmp_path / "a", 3, 5).take(START)


def test_a_round_takes_one_place_when_it_is_entered_and_no_other_does(
    world: World, tmp_path: Path
) -> None:
    """Whatever is refused before takes none: else one signature would be worth many places."""
    world.rules = {"joins_per_hour": 2}
    admission = world.admit()
    with StoredHistory(tmp_path / "history", before_entry=admission.take_place) as history:
        for number in (3, 4):
            history.enter(world.session.session_id, number)
            for _ in range(3):
                with refused(PolicyError, "round_number"):
                    history.enter(world.session.session_id, number)
        with refused(PolicyError, "joins_per_hour"):
            history.enter(world.session.session_id, 5)
    with StoredHistory(tmp_path / "history") as history:
        history.enter(world.session.session_id, 5)  # it was not marked


def test_what_a_site_has_spent_is_of_its_policy_s_goal(world: World) -> None:
    assert world.site.earlier(world.own, GOAL) == 0
    world.federation.enrol("a", world.own, spent=(3, SPENT))
    world.federation.revoke("a")
    new = Identity.generate().public
    # The new entry says nothing of it; the site's old one still does.
    world.federation.enrol("a", new, spent=(0, None))
    world.session = world.federation.session()
    world.admit(own=new)
    assert world.site.earlier(new, GOAL) == world.site.earlier(world.own, GOAL) == 3
    for goal in (replace(GOAL, epsilon=5.0), replace(GOAL, rounds=11), None):
        with pytest.raises(ConfigurationError, match="spent 3 rounds of another"):
            world.site.earlier(new, goal)
    with pytest.raises(ConfigurationError, match="with this client's key"):
        world.site.earlier(bytes(32), GOAL)
