"""What a site brings itself, and takes from no job: `local/veilsum` in its NVFlare workspace.

| file | whose | holds |
|---|---|---|
| `agreement.toml` | everybody's | what all parties agreed to: privacy, cohort, size of the model |
| `registry.json` | everybody's | every client's Ed25519 public key, hexadecimal, by its name |
| `committee.json` | everybody's | likewise, of a named committee's members, if there is one |
| `NAME/identity.key` | that client's | its private key: 32 bytes, read by its owner only |
| `NAME/history` | that client's | rounds answered and charged: a `StoredHistory` |
| `NAME/round` | that client's | a round between two of its messages, sealed |
| `NAME/noise`, `NAME/added` | that member's | noise that it may take back: a `StoredMemberNoise` |
| `ledger.jsonl` | the server's | every release of this server, over all jobs |

Agreement and registry have to come from somebody that the clients trust, with the start-up kit,
say.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from nvflare.apis.fl_context import FLContext
from pydantic import Field

from protocol.adapters.evaluation import RECORDS, survey_of
from protocol.adapters.private_files import read_private
from protocol.errors import ConfigurationError
from protocol.planning.configuration import (
    LIFETIME_SECONDS,
    PlanTables,
    build_plan,
    load,
    named_members,
    returned_noise,
    within,
)
from protocol.planning.policies import client_policy
from protocol.planning.training_plan import TrainingPlan
from protocol.round.committee_policy import KEY_ROUNDS, KEYS
from protocol.round.policy import ClientPolicy
from protocol.schemes import OneShot
from protocol.statistics.codebooks import MOST_TOKENS
from protocol.statistics.survey import Survey
from secagg import Identity
from secagg.checks import Range, whole
from secagg.keys import KEY_BYTES

FOLDER = "veilsum"
COMMITTEE = "committee.json"


class Agreement(PlanTables):
    """What all parties of a federation agreed to, outside of any job."""

    rounds: Annotated[int, within("rounds")] = Field(
        description="that a client takes part in, over all jobs"
    )
    dimension: Annotated[int, within("dimension")] = Field(
        description="numbers in a model that are averaged"
    )
    own_noise_multiplier: Annotated[float, within("own_noise_multiplier")] = Field(
        default=0.0,
        description="least noise of a client's own, over what it can change",
    )
    key_rounds: Annotated[int, within(KEYS)] = Field(
        default=KEY_ROUNDS,
        description="rounds of a job that one sealing key of a committee's member serves",
    )
    lifetime_seconds: Annotated[int, within("lifetime_seconds")] = Field(
        default=LIFETIME_SECONDS,
        description="most that a round lives, by the clients' clocks; 0 for ever",
    )
    horizon: Annotated[int | None, within("rounds")] = Field(
        default=None,
        description='rounds of the whole run, where noise.kind = "returned"; a job is a run then',
    )
    noise_after_seconds: Annotated[float, within(Range(0, 3600))] = Field(
        default=20.0,
        description="when a member sends its noise after it was asked for: some values take longer "
        "to draw than others",
    )
    evaluation: dict[str, dict[str, Any]] = Field(
        default={}, description="metrics of private evaluations by name, as with Flower"
    )
    evaluation_records: Annotated[int, within(whole(1, MOST_TOKENS))] = Field(
        default=RECORDS, description="examples that stand for a client in an evaluation"
    )

    def survey(self) -> Survey | None:
        """What private evaluations ask; None if there are none."""
        return survey_of(self.evaluation, self.evaluation_records)

    @property
    def plan(self) -> TrainingPlan:
        """The training plan."""
        noise = returned_noise(self, self.horizon)
        plan = build_plan(self, self.rounds, self.lifetime_seconds, noise)
        _ = named_members(plan)
        return plan

    @property
    def returns(self) -> bool:
        """Whether members add noise that comes back."""
        return self.plan.noise.remembered

    @property
    def named_members(self) -> int:
        """Members of the named committee; 0 if there is none."""
        return named_members(self.plan)

    def policy(
        self, named: Collection[bytes] = (), registry: Collection[bytes] = ()
    ) -> ClientPolicy:
        """What a client that agreed insists on.

        Args:
            named: identity keys of a named committee's members.
            registry: of all clients, from whom a committee may be drawn.
        """
        plan, draw = self.plan, None
        if registry and isinstance(plan.scheme, OneShot):
            draw = plan.scheme.draw(plan, registry)
        policy = client_policy(plan, self.dimension, named, draw)
        if policy.committee is not None:
            committee = replace(policy.committee, largest_key_rounds=self.key_rounds)
            policy = replace(policy, schemes=(committee,))
        return replace(policy, minimum_own_noise_multiplier=self.own_noise_multiplier)


class Site:
    """A party's own folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @classmethod
    def of(cls, context: FLContext) -> Site:
        """The site that runs this process."""
        return cls(Path(context.get_workspace().get_site_config_dir()) / FOLDER)

    @cached_property
    def agreement(self) -> Agreement:
        """Raises `ConfigurationError` if there is none that can be used."""
        return load(self._folder / "agreement.toml", Agreement)

    @cached_property
    def registry(self) -> Mapping[str, bytes]:
        """Public keys by name; raises `ConfigurationError` if it cannot be used."""
        return read_registry(self._folder / "registry.json")

    @cached_property
    def committee(self) -> Mapping[str, bytes]:
        """Public keys of a named committee by its members' names; empty if there is none."""
        size, name = self.agreement.named_members, COMMITTEE
        if not size:
            return {}
        members = read_registry(self._folder / name)
        if len(members) != size:
            raise ConfigurationError(name, f"{len(members)} members", f"{size}, as agreed")
        by_key = {key: who for who, key in self.registry.items()}
        for who, key in members.items():
            if self.registry.get(who, key) != key or by_key.get(key, who) != who:
                problem = f"{who} has another name or key in registry.json"
                raise ConfigurationError(name, problem, "one name and one key for each")
        if self.agreement.returns and (both := sorted(members.keys() & self.registry.keys())):
            valid = "members that are no clients: they know the noise that they add"
            raise ConfigurationError(name, f"{', '.join(both)} in registry.json as well", valid)
        return members

    @property
    def policy(self) -> ClientPolicy:
        """What a client of this site insists on."""
        return self.agreement.policy(frozenset(self.committee.values()), self.registry.values())

    @property
    def ledger(self) -> Path:
        """The server's records."""
        return self._folder / "ledger.jsonl"

    def client(self, name: str) -> Path:
        """The folder of one client."""
        return self._folder / name

    def identity(self, name: str) -> Identity:
        """The signing key of a client."""
        path = self.client(name) / "identity.key"
        raw = read_private(path, "the client's 32-byte private key")
        if len(raw) != KEY_BYTES:
            raise ConfigurationError(str(path), f"{len(raw)} bytes", "32 bytes")
        identity = Identity.from_private_bytes(raw)
        known = self.registry
        if name not in known and (self._folder / COMMITTEE).exists():
            known = self.committee
        if known.get(name) != identity.public:
            problem = f"{name} is not registered with this key"
            raise ConfigurationError("registry.json", problem, "the public key of identity.key")
        return identity


def read_registry(path: Path) -> dict[str, bytes]:
    """Public keys by client name; raises as `Site.registry` does."""
    try:
        raw = json.loads(path.read_bytes())
        registry = {name: bytes.fromhex(key) for name, key in raw.items()}
    except OSError as error:
        valid = "a readable file"
        raise ConfigurationError(str(path), error.strerror or "unreadable", valid) from None
    except (ValueError, AttributeError, TypeError) as error:
        valid = "a JSON object of hexadecimal keys by client name"
        raise ConfigurationError(str(path), str(error), valid) from None
    if any(len(key) != KEY_BYTES for key in registry.values()):
        raise ConfigurationError(str(path), "a key of another length", "keys of 32 bytes")
    if len(set(registry.values())) != len(registry):
        raise ConfigurationError(str(path), "one key under two names", "a key for each client")
    return registry


def make_identity(folder: Path, name: str) -> bytes:
    """Make a client's key where `Site` looks for it, and return the public half to register."""
    home = folder / name
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    identity = Identity.generate()
    descriptor = os.open(home / "identity.key", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(identity.private_bytes())
    return identity.public


def write_registry(
    folder: Path, registry: Mapping[str, bytes], file: str = "registry.json"
) -> None:
    """Write a site's `registry.json`, or its `committee.json`."""
    text = json.dumps({name: key.hex() for name, key in sorted(registry.items())}, indent=2)
    (folder / file).write_text(text + "\n")
