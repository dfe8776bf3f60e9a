"""Rounds that somebody signs, on Flower: nothing of a client is touched by a made-up one."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("flwr", reason="flwr is not installed: `make test-flower` brings it")

from flower_doubles import RUN_ID, World, make_app, model
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp.strategy import FedAvg

from protocol.adapters.flower import RoundLostError, SecureGrid, TooFewNodesError, client
from protocol.adapters.flower.errors import SettingsError
from protocol.adapters.flower.folders import NEXT, new_client, policy_text, rotate
from protocol.adapters.flower.home import ClientHome, ClientRules, home_of, read_known
from protocol.adapters.flower.places import announcer_of, known_clients
from protocol.adapters.flower.record import KEY, Request, Step, read_request
from protocol.adapters.private_files import read_identity, write_identity
from protocol.allocation import Allocation
from protocol.authority.rotation import rotated
from protocol.errors import ConfigurationError
from protocol.goal import PrivacyGoal
from protocol.noise.noise import Returned
from protocol.planning.configuration import load
from protocol.round.member_noise import StoredMemberNoise
from protocol.round.stored_history import StoredHistory
from protocol.round.turns import Question
from protocol.schemes.committee import Drawn, Everyone, Named
from secagg import Identity
from secagg.shamir import Rand
from tests.doubles.federation import APP, Federation

PAIRWISE: dict[str, Any] = {}
EVERYONE: dict[str, Any] = {"committee": Everyone()}
NAMED: dict[str, Any] = {"committee": Named(size=4, corrupt=0, away=1)}
ALL = Drawn(size=7, corrupt=0, away=1, odds=0.999999999)
"""Of seven clients, which are six beside the lottery's failure once in 10^8."""
KINDS = {
    "pairwise": PAIRWISE,
    "everyone": EVERYONE,
    "named": NAMED,
    "drawn": {"committee": replace(ALL, size=4)},
}
FIRST = {kind: Step.UPLOAD for kind in KINDS} | {"pairwise": Step.ADVERTISE}


@dataclass
class Signed:
    """A network of a federation, and what was sent in it, by node and step."""

    world: World
    federation: Federation
    sent: dict[tuple[int, Step], Request] = field(default_factory=dict)
    spoil: Callable[[int, Request], Request] = lambda _, request: request

    def __post_init__(self) -> None:
        self.world.grid.spoil = self._deliver

    def _deliver(self, message: Message) -> Message:
        node, request = message.metadata.dst_node_id, read_request(message.content)
        assert request is not None
        self.sent[node, request.step] = request
        message.content[KEY] = self.spoil(node, request).record()
        return message

    def secure(self) -> SecureGrid:
        return self.world.secure(announcer=self.federation.session(run=str(RUN_ID)))

    def run(self, parts: SimpleNamespace, rounds: int = 1) -> SecureGrid:
        with self.secure() as secure:
            strategy = FedAvg(fraction_evaluate=0.0)
            strategy.start(grid=secure, initial_arrays=parts.model(), num_rounds=rounds)
        return secure

    def ask(self, request: Request, partition: int = 0) -> bytes:
        """One message as a server may make it up; the answer."""
        node = self.world.node(partition)
        content = RecordDict({KEY: request.record(), "arrays": model()})
        reply = node.handle(self.world.grid.app, Message(content, node.number, "train"))
        record = reply.content[KEY]
        assert isinstance(record, ConfigRecord) and isinstance(record["answer"], bytes)
        return record["answer"]

    def state(self, partition: int = 0) -> dict[str, bytes]:
        """Every file that the client keeps, but for what it read of the registry."""
        state = self.world.home(partition) / "state"
        return {
            str(path.relative_to(state)): path.read_bytes()
            for path in state.rglob("*")
            if path.is_file() and "registry" not in path.parts
        }


def policy_of(home: Path, **changes: Any) -> None:
    """Rewrite a policy with other rules."""
    rules = load(home / "policy.toml", ClientRules)
    (home / "policy.toml").write_text(policy_text(rules.model_copy(update=changes)))


@pytest.fixture
def make_signed(make_world: Callable[..., World], tmp_path: Path) -> Callable[..., Signed]:
    """Builds a network whose clients take signed rounds only."""

    def make(kind: dict[str, Any], joins: int = 30, **others: Any) -> Signed:
        world = make_world(**kind, **others)
        federation = Federation(tmp_path / "registry.json")
        clients = len(list((tmp_path / str(RUN_ID)).glob("client-*")))
        for i in range(clients):
            key = ClientHome(world.home(i)).identity.public
            roles = ["client", "member"] if key in world.committee else ["client"]
            federation.enrol(f"site-{i}", key, roles)
        for i in range(clients):
            home = world.home(i)
            for folder in (home / "state", home / "state" / "member"):
                StoredHistory(folder).close()
            StoredMemberNoise(home / "state" / "noise").close()
            (home / "state" / "owner.txt").write_text(ClientHome(home).identity.public.hex() + "\n")
            (home / "registry.json").write_bytes(federation.path.read_bytes())
            for name in ("registry.txt", "committee.txt"):
                (home / name).unlink(missing_ok=True)
            policy_of(home, authority=federation.rules(joins_per_hour=joins))
        return Signed(world, federation)

    return make


@pytest.mark.parametrize("kind", KINDS)
def test_rounds_go_as_they_do_without_signatures(
    make_signed: Callable[..., Signed], parts: SimpleNamespace, kind: str
) -> None:
    signed = make_signed(KINDS[kind])
    reports = signed.run(parts, rounds=2).reports
    assert [(report.survivors, report.lost) for report in reports] == [(parts.N, {})] * 2
    carried = {step for (_, step), request in signed.sent.items() if request.signed}
    asked = {"pairwise": {Step.ADVERTISE}}
    assert carried == asked.get(kind, {Step.HELLO, Step.UPLOAD, Step.CHECK})
    # Each of the two took a place of the announcer's, members' parts none.
    for i in range(parts.N):
        joins = signed.state(i)[f"joins/{signed.federation.announcer.public.hex()}"]
        assert len(joins) == 2 * 8


def unsigned(request: Request, _: Request) -> Request:
    return replace(request, signed=b"")


def of_another_round(request: Request, other: Request) -> Request:
    return replace(request, signed=other.signed)


def made_up(request: Request, _: Request) -> Request:
    """A round, or a request, that its announcer did not sign: another number."""
    if request.step is Step.HELLO:
        return replace(request, payload=request.payload[:-1] + b"\x01")
    return replace(request, payload=other_number(request.payload))


def other_number(payload: bytes) -> bytes:
    """An announcement whose round has another number: it is one byte of MessagePack."""
    place = payload.index(b"\xc4\x10") + 18
    assert payload[place] < 0x7E
    return payload[:place] + bytes([payload[place] + 1]) + payload[place + 1 :]


def bent(request: Request, _: Request) -> Request:
    """A bit of the signature on the round."""
    place = request.signed.index(b'{"registry"') - 10
    return replace(
        request,
        signed=request.signed[:place]
        + bytes([request.signed[place] ^ 1])
        + request.signed[place + 1 :],
    )


@pytest.mark.parametrize("how", [unsigned, of_another_round, made_up, bent])
@pytest.mark.parametrize(
    ("kind", "step"),
    [
        ("pairwise", Step.ADVERTISE),
        ("everyone", Step.HELLO),
        ("everyone", Step.UPLOAD),
        ("named", Step.CHECK),
    ],
)
def test_what_nobody_signed_leaves_everything_as_it_was(
    make_signed: Callable[..., Signed],
    parts: SimpleNamespace,
    how: Callable[[Request, Request], Request],
    kind: str,
    step: Step,
) -> None:
    """At the moment at which most is kept: a round is stored, and its keys."""
    signed = make_signed(KINDS[kind])
    signed.run(parts)
    node = signed.world.node(0).number
    genuine = signed.sent[node, step]
    signed.run(parts)
    last = signed.sent[node, step]
    before = signed.state()
    assert before
    answer = signed.ask(how(genuine, last))
    assert answer[:1] == b"\1"
    assert signed.state() == before


RETURNED: dict[str, Any] = {
    "clients": 16,
    "goal": PrivacyGoal(8.0, 1e-5, 3),
    "cohort": 4,
    "tolerated_dropouts": 1,
    "committee": Named(size=4, corrupt=0, away=1),
    "noise": Returned(rounds=9, apart=3),
    "error_share": 0.1,
}


def no_member(signed: Signed, request: Request) -> Request:
    """A newer registry has the site as a client only."""
    home = signed.world.home(0)
    signed.federation.enrol("site-0", ClientHome(home).identity.public, ["client"])
    (home / "registry.json").write_bytes(signed.federation.path.read_bytes())
    return request


def forgotten(signed: Signed, request: Request) -> Request:
    """What the member added to the run is lost, and everything else is there."""
    shutil.rmtree(signed.world.home(0) / "state" / "noise")
    return request


SPOILT: dict[str, Callable[[Signed, Request, Request], Request]] = {
    **{
        how.__name__: lambda _, request, other, how=how: how(request, other)
        for how in (unsigned, of_another_round, made_up, bent)
    },
    "no member": lambda signed, request, _: no_member(signed, request),
    "forgotten": lambda signed, request, _: forgotten(signed, request),
}


@pytest.mark.parametrize("how", SPOILT)
def test_noise_that_nobody_signed_is_neither_made_nor_sent_again(
    make_signed: Callable[..., Signed], parts: SimpleNamespace, how: str
) -> None:
    signed = make_signed(RETURNED)
    node, asked = signed.world.node(0).number, list[Request]()
    with signed.secure() as secure:
        for _ in range(2):
            start(secure, parts, 1)
            asked.append(signed.sent[node, Step.NOISE])
    assert [report.lost for report in secure.reports] == [{}, {}]
    assert signed.ask(asked[1])[:1] == b"\0"  # the reply was lost
    # Nobody's place is taken by a member's part.
    assert not any("joins" in name for name in signed.state())
    request = SPOILT[how](signed, asked[1], asked[0])
    before = signed.state()
    for each in (request, replace(signed.sent[node, Step.CHECK], signed=request.signed)):
        assert signed.ask(each)[:1] == b"\1"
    assert signed.state() == before


def test_nobody_but_the_announcer_asks_whose_turn_it_is(
    make_signed: Callable[..., Signed], parts: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    coins, known = cycle([0, 1]), dict[bytes, int]()

    def draw(block: int, rand: Rand) -> int:
        coin = rand(16)
        return known[coin] if coin in known else known.setdefault(coin, next(coins))

    monkeypatch.setattr("protocol.round.turns.drawn_turn", draw)
    hidden = Allocation(population=parts.N, block=2, rounds=4, fewest=2, most=3)
    signed = make_signed({"allocation": hidden, "degree": 0})
    (report,) = signed.run(parts).reports
    assert report.survivors == 3
    genuine = signed.sent[signed.world.node(0).number, Step.TURN]
    before, asked = signed.state(), Question.read(genuine.payload)
    other = replace(genuine, payload=replace(asked, round_number=2).encode())
    assert signed.ask(genuine)[:1] == b"\0"
    for refused in (unsigned(genuine, genuine), bent(genuine, genuine), other):
        assert signed.ask(refused)[:1] == b"\1"
    assert signed.state() == before
    # A folder that lost its history would draw again: it does not say.
    shutil.rmtree(signed.world.home(0) / "state" / "answered")
    assert signed.ask(genuine)[:1] == b"\1"


STORED = {"pairwise": Step.SHARE, "everyone": Step.SIGN, "named": Step.SIGN}


@pytest.mark.parametrize("kind", STORED)
def test_a_round_goes_on_whatever_is_sent_between_its_messages(
    make_signed: Callable[..., Signed], parts: SimpleNamespace, kind: str
) -> None:
    """Made-up beginnings, and genuine ones once more: no key of the stored round is cleared."""
    signed = make_signed(KINDS[kind])
    answers: list[bytes] = []

    def between(number: int, request: Request) -> Request:
        if request.step is STORED[kind] and number == parts.FIRST_NODE:
            steps = [Step.UPLOAD, Step.CHECK] if kind != "pairwise" else [Step.ADVERTISE]
            for step in steps:
                begun = signed.sent[number, step]
                answers.extend(signed.ask(each) for each in (begun, made_up(begun, begun)))
        return request

    signed.spoil = between
    (report,) = signed.run(parts).reports
    assert report.lost == {} and report.survivors == parts.N
    again = [answer[:1] for answer in answers]
    # An upload is repeated, the same bytes; all else is refused.
    assert again == ([b"\1"] * 2 if kind == "pairwise" else [b"\0", b"\1", b"\1", b"\1"])
    joins = signed.state()[f"joins/{signed.federation.announcer.public.hex()}"]
    assert len(joins) == 8


def test_a_genuine_round_of_another_app_or_run_is_refused(
    make_signed: Callable[..., Signed], parts: SimpleNamespace
) -> None:
    signed = make_signed(PAIRWISE)
    for i in range(parts.N):
        policy_of(signed.world.home(i), name_refused_clauses=True)
    for digest, lost in ((APP, []), (bytes(32), [1])):
        signed.world.grid.app = make_app(mods=[partial(with_app, digest)])
        with pytest.raises(RoundLostError, match="app") if lost else nullcontext():
            signed.run(parts, rounds=3 if lost else 1)
    signed.world.grid.app = make_app()
    with (
        pytest.raises(RoundLostError, match="run"),
        signed.world.secure(announcer=signed.federation.session(run="78")) as secure,
    ):
        start(secure, parts)


def with_app(app: bytes, message: Message, context: Any, call_next: Any) -> Message:
    return client.guarded(home_of, message, context, call_next, app)


def start(secure: SecureGrid, parts: SimpleNamespace, rounds: int = 3) -> None:
    strategy = FedAvg(fraction_evaluate=0.0)
    strategy.start(grid=secure, initial_arrays=parts.model(), num_rounds=rounds)


def test_a_revoked_site_is_left_out_and_one_too_few_are_no_cohort(
    make_signed: Callable[..., Signed], parts: SimpleNamespace
) -> None:
    signed = make_signed(PAIRWISE, clients=7)
    with signed.secure() as secure:
        start(secure, parts, 1)
        signed.federation.revoke("site-6")
        start(secure, parts, 1)
        assert secure.reports[-1].survivors == 6
        gone = signed.world.node(6).number
        assert [step for node, step in signed.world.grid.seen if node == gone].count("unmask") < 2
        signed.federation.revoke("site-5")
        with pytest.raises(TooFewNodesError, match="5 clients are valid in the registry"):
            start(secure, parts)


@pytest.mark.parametrize("server", ["honest", "seats it", "tells of no newer registry"])
def test_a_revoked_client_is_on_no_drawn_committee(
    make_signed: Callable[..., Signed], parts: SimpleNamespace, server: str
) -> None:
    """The registry that is drawn from stays the session's; clients refuse whom it has lost."""
    signed = make_signed({"committee": ALL}, clients=7)
    for i in range(7):
        policy_of(signed.world.home(i), name_refused_clauses=True)
    session = signed.federation.session(run=str(RUN_ID))
    with signed.world.secure(announcer=session) as secure:
        start(secure, parts, 1)
        assert secure.reports[-1].survivors == 6
        signed.federation.revoke("site-6")
        newest = signed.federation.path.read_bytes()
        for i in range(7):
            (signed.world.home(i) / "registry.json").write_bytes(newest)
        told, everybody = session.clients, signed.world.registry
        found: Callable[[], frozenset[bytes]] = {
            "honest": told,
            "seats it": lambda: told() | everybody,
            "tells of no newer registry": lambda: everybody,
        }[server]
        session.clients = found  # type: ignore[method-assign]
        with pytest.raises((TooFewNodesError, RoundLostError)) as caught:
            start(secure, parts)
    refused = set(re.findall(r"PolicyError: (\w+)", str(caught.value)))
    if server == "honest":
        assert "6 of those drawn for a committee" in str(caught.value)
    elif server == "seats it":
        assert "committee" in refused
    else:
        assert refused == {"registry"}


def test_a_committee_is_drawn_from_all_who_were_ever_registered(
    make_signed: Callable[..., Signed], parts: SimpleNamespace
) -> None:
    """Whoever was revoked before the session began has a place there, and no seat."""
    signed = make_signed({"committee": replace(ALL, size=4)}, clients=7)
    signed.federation.enrol("auditor", Identity.generate().public, ["member"])
    signed.federation.revoke("site-6")
    signed.world.registry = read_known(signed.federation.path)  # as a server does
    home = signed.world.home(0)
    (home / "registry.json").write_bytes(signed.federation.path.read_bytes())
    (report,) = signed.run(parts).reports
    assert report.survivors == 6 and signed.world.node(6).number in report.lost
    for site in range(1, 6):
        signed.federation.revoke(f"site-{site}")
    (home / "registry.json").write_bytes(signed.federation.path.read_bytes())
    assert ClientHome(home).authority.brought().number == signed.federation.registry.number
    accepted = ClientHome(home).policy.committee
    assert (accepted.draw.registry_size, len(accepted.named)) == (7, 1)


@pytest.mark.parametrize("kind", ["pairwise", "drawn"])
def test_the_registry_is_read_once_for_a_round(
    make_signed: Callable[..., Signed], parts: SimpleNamespace, kind: str
) -> None:
    """Its cohort and its committee are of the same: one that is newer would refuse the other."""
    signed, reads = make_signed(KINDS[kind]), list[int]()

    def read() -> bytes:
        reads.append(1)
        return signed.federation.path.read_bytes()

    session = signed.federation.session(run=str(RUN_ID), read=read)
    with signed.world.secure(announcer=session) as secure:
        start(secure, parts, 2)
    assert len(reads) == 1 + 2


@pytest.mark.parametrize("since", ["revoked", "enrolled"])
def test_a_cohort_with_a_site_that_either_registry_lacks_is_refused(
    make_signed: Callable[..., Signed], parts: SimpleNamespace, since: str
) -> None:
    """Neither the session's alone counts, nor the newest that the sites know."""
    signed = make_signed(PAIRWISE)
    files = signed.federation.written
    begun_with = files[-1] if since == "revoked" else files[-2]
    session = signed.federation.session(run=str(RUN_ID), read=lambda: begun_with)
    if since == "revoked":
        signed.federation.revoke("site-5")
    for i in range(parts.N):
        (signed.world.home(i) / "registry.json").write_bytes(signed.federation.path.read_bytes())
        policy_of(signed.world.home(i), name_refused_clauses=True)
    session.clients = lambda: signed.world.registry  # type: ignore[method-assign]
    with (
        pytest.raises(RoundLostError, match="cohort"),
        signed.world.secure(announcer=session) as secure,
    ):
        start(secure, parts)


def test_an_announcer_s_rounds_are_counted(
    make_signed: Callable[..., Signed], parts: SimpleNamespace
) -> None:
    signed = make_signed(PAIRWISE, joins=2)
    with pytest.raises(RoundLostError):
        signed.run(parts, rounds=6)
    joins = signed.state()[f"joins/{signed.federation.announcer.public.hex()}"]
    assert len(joins) == 2 * 8


def test_what_was_spent_elsewhere_is_not_spent_again(
    make_signed: Callable[..., Signed], parts: SimpleNamespace
) -> None:
    signed = make_signed(PAIRWISE)
    goal = signed.world.plan.goal
    for i in range(parts.N):
        spent = goal.rounds - 1, (goal.epsilon, goal.delta, goal.rounds, goal.moment_order)
        signed.federation.enrol(
            f"site-{i}", ClientHome(signed.world.home(i)).identity.public, spent=spent
        )
    # The clients have not heard of it; the server brings it.
    signed.run(parts)
    with pytest.raises(RoundLostError):
        signed.run(parts, rounds=3)


@pytest.mark.parametrize("lost", ["state", "owner", "history"])
@pytest.mark.parametrize("kind", ["pairwise", "everyone"])
def test_a_key_beside_a_fresh_folder_joins_nothing(
    make_signed: Callable[..., Signed], parts: SimpleNamespace, lost: str, kind: str
) -> None:
    signed = make_signed(KINDS[kind])
    signed.run(parts)
    home = signed.world.home(0)
    owner = home / "state" / "owner.txt"
    if lost == "state":
        (home / "state").rename(home / "lost")
    elif lost != "owner":
        for folder in (home / "state", home / "state" / "member"):
            for name in ("answered", "charges.jsonl"):
                (folder / name).rename(home / f"{name}-of-{folder.name}")
    else:
        owner.write_text(Identity.generate().public.hex())
    # A pairwise round goes on without it; one-shot rounds want a key of every member.
    found = [set(report.lost) for report in signed.run(parts).reports]
    assert found == ([{parts.FIRST_NODE}] if kind == "pairwise" else [])
    for step in (FIRST[kind], Step.CHECK, Step.HELLO):
        if (parts.FIRST_NODE, step) in signed.sent and (step, kind) != (Step.HELLO, "pairwise"):
            assert signed.ask(signed.sent[parts.FIRST_NODE, step])[:1] == b"\1"
    assert owner.exists() is (lost != "state")
    marks = [*home.glob("state/answered/*"), *home.glob("state/member/answered/*")]
    assert (marks == []) is (lost != "owner")


def test_a_new_identity_has_its_owner_s_line_and_an_old_one_gets_none(tmp_path: Path) -> None:
    identity = new_client(tmp_path / "a")
    owner = tmp_path / "a" / "state" / "owner.txt"
    assert owner.read_text() == identity.public.hex() + "\n"
    assert StoredHistory.is_in(owner.parent) and StoredHistory.is_in(owner.parent / "member")
    assert new_client(tmp_path / "a").public == identity.public
    # A history that was lost is not made again with the next key of the folder.
    (tmp_path / "a" / "identity.key").unlink()
    (owner.parent / "charges.jsonl").unlink()
    new_client(tmp_path / "a")
    assert len(owner.read_text().split()) == 2 and not StoredHistory.is_in(owner.parent)
    owner.unlink()
    new_client(tmp_path / "a")
    assert not owner.exists()


def test_a_rotated_client_goes_on_in_its_folder(
    make_signed: Callable[..., Signed], parts: SimpleNamespace
) -> None:
    signed = make_signed(PAIRWISE)
    signed.run(parts)
    world, federation, home = signed.world, signed.federation, signed.world.home(0)
    old, said = ClientHome(home).identity.public, rotate(home)
    assert said and rotate(home) == said  # until the registry has it
    new = read_identity(home / NEXT).public
    federation.publish(rotated(federation.registry, said, new.hex(), federation.now))
    (home / "registry.json").write_bytes(federation.path.read_bytes())
    assert rotate(home) is None and not (home / NEXT).exists()
    assert ClientHome(home).identity.public == new
    assert (home / "state" / "owner.txt").read_text().split() == [old.hex(), new.hex()]
    world.registry = world.registry - {old} | {new}
    (report,) = signed.run(parts).reports
    assert report.lost == {} and len(list((home / "state" / "answered").iterdir())) == 2
    # A folder that is not the identity's own gets no other one; nor does a key that nobody knows.
    write_identity(home / "other.key", Identity.generate())
    (home / "other.key").replace(home / "identity.key")
    with pytest.raises(ConfigurationError, match="without this client's key"):
        rotate(home)
    with (home / "state" / "owner.txt").open("a") as owners:
        owners.write(ClientHome(home).identity.public.hex())
    with pytest.raises(ConfigurationError, match="with this client's key"):
        rotate(home)


def test_a_server_reads_either_kind_of_registry(tmp_path: Path) -> None:
    federation = Federation(tmp_path / "registry.json")
    keys = [Identity.generate().public for _ in range(2)]
    for i, key in enumerate(keys):
        federation.enrol(f"s{i}", key, ["member"] if i else ["client"])
    assert read_known(federation.path) == {keys[0]}
    assert read_known(federation.path, "member") == {keys[1]}
    assert known_clients(str(federation.path)) == 1
    (tmp_path / "registry.txt").write_text(keys[1].hex())
    assert read_known(tmp_path / "registry.txt") == {keys[1]}


def test_settings_name_the_announcer_s_key(tmp_path: Path) -> None:
    federation, key = Federation(tmp_path / "registry.json"), tmp_path / "announcer.key"
    federation.write()
    write_identity(key, federation.announcer)
    run = SimpleNamespace(run_id=RUN_ID, fab_hash=APP.hex())
    clock = SimpleNamespace(unix=lambda: federation.now)

    def made(**changes: Any) -> Any:
        values = {"announcer": str(key), **changes}
        path = {"announcer": key, "registry": federation.path}.__getitem__
        return announcer_of(SimpleNamespace(**values, path=path), run, clock)

    assert made(announcer=None) is None
    assert len(made().session_id) == 16
    run.fab_hash = "abc"
    with pytest.raises(SettingsError, match="SHA-256"):
        made()
    run.fab_hash = "abcd"
    with pytest.raises(SettingsError, match="SHA-256"):
        made()
    run.fab_hash = APP.hex()
    federation.path.write_text(read_identity(key).public.hex())
    with pytest.raises(SettingsError, match=r"veilsum\.announcer"):
        made()
    with pytest.raises(ConfigurationError, match="mode"):
        key.chmod(0o644)
        read_identity(key)
