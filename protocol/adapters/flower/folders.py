"""Writes clients' folders: identities, registries, policies."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from protocol.adapters.flower.home import (
    IDENTITY,
    POLICY,
    REGISTRY,
    ClientRules,
    client_folder,
    read_identity,
)
from protocol.planning.training_plan import TrainingPlan
from secagg import Identity, Mode


def rules_of(plan: TrainingPlan, **permissions: bool) -> ClientRules:
    """The rules of clients who want what a plan promises and accept nothing less.

    Args:
        plan: of a server.
        permissions: by the names that they have in `ClientRules`; what is left out is not given.
    """
    return ClientRules(
        epsilon=plan.goal.epsilon,
        delta=plan.goal.delta,
        rounds=plan.goal.rounds,
        moment_order=plan.goal.moment_order,
        clip_l2=plan.clip_l2,
        mechanism=plan.mechanism,
        minimum_survivors=plan.minimum_survivors,
        tolerated_colluders=plan.tolerated_colluders,
        security_bits=plan.ring_bits,
        lifetime_seconds=plan.lifetime_seconds or None,
        largest_cohort=plan.cohort,
        allow_semi_honest=plan.mode is Mode.SEMI_HONEST,
        **permissions,
    )


def write_client(
    home: Path, identity: Identity, registry: Collection[bytes], rules: ClientRules
) -> None:
    """Write a client's folder, readable by its owner only.

    Raises:
        FileExistsError: there is an identity; it is never overwritten.
    """
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_identity(home / IDENTITY, identity)
    write_registry(home / REGISTRY, registry)
    (home / POLICY).write_text(policy_text(rules))


def write_identity(path: Path, identity: Identity) -> None:
    """Write a private key, once."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(identity.private_bytes().hex() + "\n")


def write_registry(path: Path, registry: Collection[bytes]) -> None:
    """Write identity keys, one to a line."""
    path.write_text("".join(f"{key.hex()}\n" for key in sorted(registry)))


def policy_text(rules: ClientRules) -> str:
    """Rules as TOML. Numbers, booleans and plain words are written alike in Python's JSON."""
    values = rules.model_dump(exclude_none=True)
    lines = [f"{name} = {_toml(value)}" for name, value in values.items()]
    return "\n".join(["# What this client insists on, whatever the server says.", *lines, ""])


def _toml(value: bool | int | float | str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else repr(value)


def new_client(home: Path) -> Identity:
    """The identity in a folder; made if there is none."""
    if (home / IDENTITY).exists():
        return read_identity(home / IDENTITY)
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    identity = Identity.generate()
    write_identity(home / IDENTITY, identity)
    return identity


def new_network(out: Path, clients: int, rules: ClientRules) -> frozenset[bytes]:
    """Write all clients' folders and the server's `registry.txt`; the identity keys in it."""
    identities = [Identity.generate() for _ in range(clients)]
    registry = frozenset(identity.public for identity in identities)
    for number, identity in enumerate(identities):
        write_client(client_folder(out, number), identity, registry, rules)
    write_registry(out / REGISTRY, registry)
    return registry
