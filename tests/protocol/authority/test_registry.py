"""The registry: one form, one signature, and nothing that a registrar could take back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from protocol.authority.registrar import MOST_SKIPPED
from protocol.authority.registry import (
    MAX_REGISTRY_BYTES,
    Entry,
    Registry,
    read_file,
    read_signed,
    signed,
)
from protocol.errors import ConfigurationError
from secagg import Identity
from secagg.tags import Usage
from tests.doubles.federation import Federation, replaced

KEYS = sorted(Identity.generate().public.hex() for _ in range(3))
GOAL = (4.0, 1e-5, 10, None)
RIGHT = (5.0, *GOAL[1:])
SPENT = {"spent": 3, "goal": GOAL}


def entry(place: int, site: str = "", **changes: Any) -> Entry:
    values = {"roles": ("client",), "not_before": 5, "not_after": 50, **changes}
    return Entry(site or f"site-{place}", KEYS[place], **values)


def registry(*entries: Entry, **changes: Any) -> Registry:
    values = {"number": 1, "issued": 10, "expires": 20, "previous": "", **changes}
    return Registry("veilsum/registry/1", "ab" * 16, entries=entries, **values)


TWO = registry(entry(0), entry(1, spent=3, goal=GOAL))


def resigned(body: bytes, by: Identity) -> bytes:
    """A file whose signature is right, whatever it signs."""
    signature = by.sign(Usage.REGISTRY, body).hex()
    head = b'{"registry":' + body + b',"registrar":"' + by.public.hex().encode()
    return head + b'","signature":"' + signature.encode() + b'"}'


def test_a_file_says_what_was_signed() -> None:
    registrar = Identity.generate()
    data = signed(TWO, registrar)
    assert data == resigned(TWO.body(), registrar)
    for registrars in (None, {registrar.public}, [bytes(32), registrar.public]):
        assert read_signed(data, registrars) == TWO
    assert json.loads(data)["registry"]["entries"][1]["goal"] == list(GOAL)
    assert TWO.active("client", 5) == {bytes.fromhex(key) for key in KEYS[:2]}
    both = registry(entry(0, revoked=7), entry(1, not_before=49), entry(2, roles=("member",)))
    assert both.registered("client") == {bytes.fromhex(key) for key in KEYS[:2]}
    assert TWO.active("client", 4.9) == TWO.active("client", 50) == TWO.active("member", 5) == set()


FORMS: dict[str, Callable[[bytes], bytes]] = {
    "spaces": lambda body: body.replace(b":", b": ", 1),
    "another order": lambda body: json.dumps(json.loads(body), sort_keys=True).encode(),
    "a key given twice": lambda body: body.replace(b'"number":1', b'"number":1,"number":1'),
    "an escape": lambda body: body.replace(b"site-0", b"\\u0073ite-0"),
    "another key": lambda body: body[:-1] + b',"more":1}',
    "a float": lambda body: body.replace(b'"number":1', b'"number":1.0'),
    "a boolean": lambda body: body.replace(b'"number":1', b'"number":true'),
    "an integer": lambda body: body.replace(b"4.0", b"4"),
    "a left-out key": lambda body: body.replace(b',"revoked":0', b""),
    "a line's end in a key": lambda body: body.replace(KEYS[0].encode(), KEYS[0].encode() + b"\\n"),
    "upper case": lambda body: body.replace(KEYS[0].encode(), KEYS[0].upper().encode()),
    "a line's end in a name": lambda body: body.replace(b"site-0", b"site-0\\n"),
    "no text": lambda body: body.replace(b"site-0", b"\xff"),
    "depth": lambda body: b"[" * 10_000 + b"]" * 10_000,
    "another format": lambda body: body.replace(b"registry/1", b"registry/2"),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_valid_signature_is_not_enough(form: str) -> None:
    registrar = Identity.generate()
    changed = FORMS[form](TWO.body())
    assert changed != TWO.body()
    with pytest.raises(ConfigurationError, match="registry"):
        read_signed(resigned(changed, registrar), {registrar.public})


def test_whoever_signed_it_has_to_count() -> None:
    registrar, data = Identity.generate(), signed(TWO, Identity.generate())
    with pytest.raises(ConfigurationError, match="signed by"):
        read_signed(data, {registrar.public})
    with pytest.raises(ConfigurationError, match="signed by"):
        read_signed(data, [])
    own = signed(TWO, registrar)
    for place in (own.index(b"site-0"), own.index(b'signature":"') + 12):
        bent = own[:place] + (b"0" if own[place : place + 1] != b"0" else b"1") + own[place + 1 :]
        with pytest.raises(ConfigurationError, match="signature does not verify"):
            read_signed(bent, {registrar.public})
    with pytest.raises(ConfigurationError, match=f"at most {MAX_REGISTRY_BYTES}"):
        read_signed(own + b" " * MAX_REGISTRY_BYTES, {registrar.public})


@pytest.mark.parametrize(
    "make",
    [
        lambda: registry(entry(1), entry(0)),
        lambda: registry(entry(0), entry(0)),
        lambda: registry(entry(0, "a"), entry(1, "a")),
        lambda: registry(expires=10),
        lambda: registry(previous="ab" * 32),
        lambda: registry(number=2),
        lambda: registry(entry(0, "a", spent=2, goal=RIGHT), entry(1, "a", revoked=9, **SPENT)),
        lambda: entry(0, roles=()),
        lambda: entry(0, roles=("member", "client")),
        lambda: entry(0, not_after=5),
        lambda: entry(0, spent=1),
        lambda: entry(0, goal=GOAL),
    ],
)
def test_one_file_agrees_with_itself(make: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"a|e"):
        make()


@pytest.mark.parametrize(
    "bad", [{"site": "A"}, {"site": "-a"}, {"site": "a" * 65}, {"spent": 1 << 32, "goal": GOAL}]
)
def test_nothing_is_signed_that_a_reader_refuses(bad: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="registry"):
        signed(registry(entry(0, **bad)), Identity.generate())


def after(*entries: Entry, **changes: Any) -> Registry:
    values = {"number": 2, "issued": 11, "previous": TWO.digest().hex(), **changes}
    return registry(*entries, **values)


SUCCESSORS: dict[str, Registry] = {
    "another federation": replaced(after(*TWO.entries), federation="cd" * 16),
    "the same number": replaced(TWO, issued=11),
    "an earlier time": after(*TWO.entries, issued=9),
    "a key is gone": after(entry(1, **SPENT)),
    "a key is another site's": after(entry(0, "site-2"), entry(1, **SPENT)),
    "fewer rounds spent": after(entry(0), entry(1, spent=2, goal=GOAL)),
    "nothing spent": after(entry(0), entry(1)),
}


@pytest.mark.parametrize("what", SUCCESSORS)
def test_no_successor_takes_anything_back(what: str) -> None:
    with pytest.raises(ConfigurationError, match="registry"):
        SUCCESSORS[what].check_after(TWO)


def test_what_may_follow() -> None:
    after(*TWO.entries).check_after(TWO)
    gone = after(entry(0), entry(1, revoked=11, **SPENT))
    gone.check_after(TWO)
    # The new key need not say it again: what counts is the most that a site's entries say.
    new = after(entry(0), entry(1, revoked=11, **SPENT), entry(2, "site-1"), number=3)
    new.check_after(gone)
    assert new.spent()["site-1"] == (3, GOAL)
    # A goal that was mistyped can be put right.
    after(entry(0), entry(1, spent=3, goal=RIGHT)).check_after(TWO)
    for revoked in (0, 12):
        back = after(entry(0), entry(1, revoked=revoked, **SPENT), number=3)
        with pytest.raises(ConfigurationError, match="no longer revoked"):
            back.check_after(gone)


def test_two_files_that_cannot_be_of_one_registrar_are_known() -> None:
    other = replaced(TWO, expires=21)
    follows = after(*TWO.entries)
    for one, two, fork in (
        (TWO, TWO, False),
        (TWO, other, True),
        (TWO, follows, False),
        (other, follows, True),
        (other, replaced(follows, number=3), False),
        (TWO, replaced(other, federation="cd" * 16), False),
    ):
        assert one.forks_from(two) is two.forks_from(one) is fork


def test_the_registrar_keeps_what_sites_insist_on(tmp_path: Path) -> None:
    federation = Federation(tmp_path / "registry.json")
    old, new = (Identity.generate().public for _ in range(2))
    federation.enrol("berlin", old, ["member", "client"])
    assert read_signed(read_file(federation.path), None).number == 2
    with pytest.raises(ConfigurationError, match="not revoked"):
        federation.enrol("berlin", new)
    with pytest.raises(ConfigurationError, match="is a key of berlin"):
        federation.enrol("paris", old)
    federation.enrol("berlin", old, spent=(4, GOAL))
    federation.enrol("berlin", old)  # for another year, as it was
    assert federation.registry.entries[0].roles == ("client", "member")
    with pytest.raises(ConfigurationError, match="at least 4"):
        federation.enrol("berlin", old, spent=(3, GOAL))
    with pytest.raises(ConfigurationError, match="--epsilon"):
        federation.enrol("berlin", old, spent=(5, None))
    federation.revoke("berlin")
    with pytest.raises(ConfigurationError, match="no key that is not revoked"):
        federation.revoke("berlin")
    with pytest.raises(ConfigurationError, match="berlin, revoked"):
        federation.enrol("berlin", old)
    with pytest.raises(ConfigurationError, match="--spent"):
        federation.enrol("berlin", new)
    # Fewer rounds, of another goal: none is forgotten, and the old key's are of that goal, too.
    for told, most in ((2, 4), (6, 6)):
        federation.enrol("berlin", new, spent=(told, RIGHT))
        assert federation.registry.spent() == {"berlin": (most, RIGHT)}
    assert federation.registry.active("client", federation.now) == {new}
    number = federation.registry.number
    for far in (number, -1, number + MOST_SKIPPED + 1):
        with pytest.raises(ConfigurationError, match="number"):
            federation.publish(number=far)
    federation.publish(number=number + 7)
    assert federation.registry.number == number + 7
    federation.now -= 3600
    with pytest.raises(ConfigurationError, match="issued"):
        federation.publish()


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No such file"):
        read_file(tmp_path / "registry.json")
