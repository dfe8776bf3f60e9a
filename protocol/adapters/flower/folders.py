"""Writes clients' folders: identities, registries, policies."""

from __future__ import annotations

import errno
import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from protocol.adapters.flower.home import (
    COMMITTEE,
    IDENTITY,
    NOISE,
    OWNER,
    POLICY,
    REGISTRY,
    STATE,
    ClientHome,
    ClientRules,
    client_folder,
    read_registry,
)
from protocol.adapters.private_files import read_identity, write_identity
from protocol.authority.rotation import rotation
from protocol.authority.site import SiteAuthority
from protocol.checks import of_kind
from protocol.planning.configuration import Section, named_members
from protocol.planning.training_plan import TrainingPlan
from protocol.round.member_noise import StoredMemberNoise
from protocol.round.stored_history import StoredHistory
from secagg import Identity
from secagg.storage import replace_durably, sync_folder

NEXT = "identity.next"
_TABLES = ("pairwise", "committee", "returned", "authority")


def rules_of(plan: TrainingPlan, **others: bool | list[str] | int | None) -> ClientRules:
    """The rules of clients who want what a plan promises and accept nothing less.

    Args:
        others: what a plan does not say, by the key of a policy.
    """
    _ = named_members(plan)
    written: dict[str, Any] = {**plan.scheme.rules(plan), **others}
    if (returned := plan.noise.clauses(plan)) is not None:
        fewest = plan.noise.fewest_members(plan)
        written["returned"] = {"apart": returned.apart, "fewest_members": fewest}
    return ClientRules(
        epsilon=plan.goal.epsilon,
        delta=plan.goal.delta,
        rounds=plan.goal.rounds,
        moment_order=plan.goal.moment_order,
        clip_l2=plan.clip_l2,
        mechanism=plan.noise.mechanism,
        minimum_survivors=plan.minimum_survivors,
        tolerated_colluders=plan.tolerated_colluders,
        lifetime_seconds=plan.lifetime_seconds or None,
        largest_cohort=plan.cohort,
        **written,
    )


def write_client(
    home: Path,
    identity: Identity,
    registry: Collection[bytes],
    rules: ClientRules,
    committee: Collection[bytes] = (),
) -> None:
    """Write a client's folder, readable by its owner only.

    Args:
        committee: identity keys of a named committee; none if there is none.
    """
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    if rules.authority is not None:
        _begin(home, identity)
    write_identity(home / IDENTITY, identity)
    write_registry(home / REGISTRY, registry)
    (home / POLICY).write_text(policy_text(rules))
    if committee:
        write_registry(home / COMMITTEE, committee)


def write_registry(path: Path, registry: Collection[bytes]) -> None:
    """Write identity keys, one to a line."""
    path.write_text("".join(f"{key.hex()}\n" for key in sorted(registry)))


def policy_text(rules: ClientRules) -> str:
    """Rules as TOML: every key and table with what it means, those left out as comments."""
    lines = ["# What this client insists on, whatever the server says.", *_keys(rules)]
    for name in _TABLES:
        table = getattr(rules, name)
        lines += ["", f"# {ClientRules.model_fields[name].description}"]
        lines += [f"#[{name}]"] if table is None else [f"[{name}]", *_keys(table)]
    return "\n".join([*lines, ""])


def _keys(table: Section) -> Iterator[str]:
    for name, field in type(table).model_fields.items():
        value = getattr(table, name)
        if name not in _TABLES:
            yield f"# {field.description}"
            # Numbers, booleans and plain words are written alike in JSON and in TOML.
            yield f"#{name} =" if value is None else f"{name} = {json.dumps(value)}"


def new_client(home: Path) -> Identity:
    """The identity in a folder; made if there is none."""
    if (home / IDENTITY).exists():
        return read_identity(home / IDENTITY)
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    identity = Identity.generate()
    # First: an owner without its key spends nothing, and a key without an owner never could.
    _begin(home, identity)
    write_identity(home / IDENTITY, identity)
    return identity


def _begin(home: Path, identity: Identity) -> None:
    """Make the histories of a folder, and say whose they are."""
    if not (home / STATE / OWNER).exists():  # else they were made before, and may be lost
        for each in (home / STATE, home / STATE / "member"):
            StoredHistory(each).close()
        StoredMemberNoise(home / STATE / NOISE).close()
    with (home / STATE / OWNER).open("a") as owners:
        owners.write(f"{identity.public.hex()}\n")


def rotate(home: Path, recovery: Identity | None = None) -> bytes | None:
    """A client's statement that another key takes its own's place; or take that key.

    The same key each time, in `identity.next`. It is taken when the registry has it.

    Returns:
        The statement for the registrar; None if the new key is in place.
    """
    client, path = ClientHome(home), home / NEXT
    authority = of_kind("authority", client.require_own(home / STATE), SiteAuthority)
    registry = authority.brought()
    if not path.exists():
        write_identity(path, Identity.generate())
    new = read_identity(path).public
    site = registry.site_of(new)
    if site is None or site != registry.site_of(client.identity.public):
        return rotation(registry, client.identity, new, recovery)
    owner = home / STATE / OWNER
    if new not in read_registry(owner):
        replace_durably(owner, owner.read_bytes() + f"{new.hex()}\n".encode())
    # No run has both keys as a member's: of what the old one added, the new one knows nothing.
    StoredMemberNoise(home / STATE / NOISE).close()
    path.replace(home / IDENTITY)
    sync_folder(home)
    return None


@dataclass(frozen=True, slots=True)
class Network:
    """The identity keys of all clients of a network, and of those on its named committee."""

    registry: frozenset[bytes]
    committee: frozenset[bytes]


def new_network(out: Path, clients: int, rules: ClientRules, named: int = 0) -> Network:
    """Write all clients' folders and the server's `registry.txt`."""
    identities = [Identity.generate() for _ in range(clients)]
    keys = [identity.public for identity in identities]
    network = Network(frozenset(keys), frozenset(keys[:named]))
    for number, identity in enumerate(identities):
        home = client_folder(out, number)
        write_client(home, identity, network.registry, rules, network.committee)
    write_registry(out / REGISTRY, network.registry)
    if named:
        write_registry(out / COMMITTEE, network.committee)
    return network


def known_network(out: Path, clients: int, rules: ClientRules) -> Network:
    """What `new_network` made before, for clients of the same number and rules."""
    registry = read_registry(out / REGISTRY)
    policy = client_folder(out, 0) / POLICY
    if len(registry) != clients:
        raise FileExistsError(errno.EEXIST, "another number of clients", str(out / REGISTRY))
    if policy.read_text() != policy_text(rules):
        raise FileExistsError(errno.EEXIST, "another policy", str(policy))
    named = out / COMMITTEE
    return Network(registry, read_registry(named) if named.exists() else frozenset())
