"""A client's own folder: its identity, whom it knows, what it insists on, what it remembers.

    identity.key    64 hex digits, readable by its owner only
    registry.txt    a line of 64 hex digits for each client that may be in a cohort
    policy.toml     what this client insists on: see `ClientRules`
    committee.txt   like registry.txt, the members of a named committee, if one-shot rounds have one
    registry.json   in place of both where the policy has a table [authority]
    state/          rounds answered, charges, keys of stored rounds, sealing keys, the last upload,
                    noise that a member may take back, coins, and in owner.txt whose they are
    frozen          if it is there, nothing is answered: see `frozen`

Its path comes from the node's own configuration, `veilsum.home`, which the server cannot set. Only
in a simulation, where one program plays everybody, it follows from the run's configuration: then
whoever runs the simulation wrote all of it, policies included. Whether there is one is a matter of
this process and of no message: it is a worker of Flower's simulation engine, or its environment
says so.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from flwr.app import Context
from pydantic import Field, model_validator

from dp.mechanisms import MechanismName
from protocol.adapters.flower.frozen import lost_rounds, require_member
from protocol.adapters.flower.log import warn
from protocol.adapters.flower.remedy import SIMULATION_KEY, hyphened
from protocol.adapters.flower.settings import SIMULATION_FOLDER, values_of
from protocol.adapters.flower.waiting import Clock
from protocol.adapters.party import AddingMember
from protocol.adapters.private_files import read_identity, read_key
from protocol.authority.registry import Registry as SignedRegistry
from protocol.authority.registry import Role, read_file, read_signed
from protocol.authority.session import Envelope
from protocol.authority.site import About, Admission, AuthorityRules, SiteAuthority
from protocol.checks import FRACTION, POSITIVE, of_kind
from protocol.errors import ConfigurationError, PolicyError
from protocol.goal import PrivacyGoal
from protocol.planning.configuration import Section, load, within
from protocol.round.clauses import Clauses, PairwiseClauses, ReturnedClauses
from protocol.round.committee_policy import (
    KEY_ROUNDS,
    KEYS,
    CommitteePolicy,
    ValidatedPolicy,
)
from protocol.round.draw_policy import DrawPolicy
from protocol.round.member_noise import StoredMemberNoise
from protocol.round.policy import ClientPolicy
from protocol.round.stored_history import StoredHistory
from protocol.round.stored_sealing import SealingFolder
from protocol.round.stored_upload import UploadFolder
from protocol.round.turns import Question, StoredTurns
from secagg import Identity
from secagg.oneshot.committee import CommitteeKind
from secagg.oneshot.sortition import CERTAIN, Registry
from secagg.pairwise.graph_parameters import SECURITY_BITS
from secagg.storage import TokenFolder
from secagg.terms import MAX_COHORT

HOME_KEY = "veilsum.home"
SIMULATION_VARIABLE = "VEILSUM_SIMULATION"
"""Set to 1 in a node's environment, it lets runs name the node's folder."""
IDENTITY, REGISTRY, POLICY, STATE = "identity.key", "registry.txt", "policy.toml", "state"
COMMITTEE = "committee.txt"
OWNER = "owner.txt"
NOISE = "noise"
SIMULATION_ENGINE = "flwr.simulation.ray_transport.ray_actor"


class PairwiseRules(Section):
    """What a client insists on about pairwise rounds."""

    security_bits: Annotated[int, within("security_bits")] = Field(
        default=SECURITY_BITS,
        description="fewest of a sparse graph that it will be part of",
    )
    allow_semi_honest: bool = Field(default=False, description="rounds without consistency check")


class CommitteeRules(Section):
    """Whom a client lets open the sums of one-shot or validated rounds."""

    scheme: Literal["one-shot", "validated"] = Field(
        default="one-shot",
        description="which rounds: in validated ones members leave out vectors that are too long",
    )
    kind: Literal["everyone", "named", "drawn"] = Field(
        description="everyone who is invited, the members named in committee.txt, or members drawn "
        "by lot from all clients"
    )
    corrupt: Annotated[int | None, within("corrupt")] = Field(
        default=None,
        description="members that may work for the server, or, where they are drawn, of all who "
        "can be; tolerated_colluders if left out",
    )
    size: Annotated[int | None, within("size")] = Field(
        default=None, description="fewest members of a drawn committee, and of no other"
    )
    odds: Annotated[float | None, within(FRACTION)] = Field(
        default=None, description="chance of every client to be drawn in a round"
    )
    threshold: Annotated[int, within("smallest_threshold")] = Field(
        default=2,
        description="fewest members that together could read one upload",
    )
    key_rounds: Annotated[int, within(KEYS)] = Field(
        default=KEY_ROUNDS,
        description="most rounds that a sealing key of a member may serve; its own serve as many",
    )

    @model_validator(mode="after")
    def _drawn_of(self) -> Self:
        given = {self.size is not None, self.odds is not None}
        if given != {self.kind == "drawn"}:
            raise ValueError("size and odds are given for a drawn committee, and no other")
        return self


class ReturnedRules(Section):
    """What a client insists on where members add noise and take it back in the next round."""

    apart: Annotated[int, within("apart")] = Field(
        description="fewest rounds from one that it takes part in to the next"
    )
    fewest_members: int = Field(
        default=0, ge=0, description="as a member: fewest whose noise is in a sum"
    )
    kept_multiplier: float = Field(
        default=0.0, ge=0.0, description="least noise of honest clients alone, which stays"
    )

    def clauses(self) -> ReturnedClauses:
        """What is held against announcements."""
        kept = self.kept_multiplier
        return ReturnedClauses(apart=self.apart, minimum_kept_multiplier=kept)


class ClientRules(Section):
    """The policy file. Keys are those of a run's configuration where they mean the same.

    A client takes part in the schemes that have a table here: in pairwise rounds if none has.
    """

    MOVED: ClassVar[Mapping[str, str]] = {
        "security_bits": "pairwise.security_bits",
        "allow_semi_honest": "pairwise.allow_semi_honest",
        "committee_corrupt": "committee.corrupt",
        "committee_threshold": "committee.threshold",
        "committee_key_rounds": "committee.key_rounds",
    }

    epsilon: Annotated[float, within("epsilon")] = Field(
        description="most that all rounds together may cost"
    )
    delta: Annotated[float, within("delta")] = Field(description="of the same promise")
    rounds: Annotated[int, within("rounds")] = Field(
        description="that this client may ever take part in"
    )
    clip_l2: Annotated[float, within(POSITIVE)] = Field(description="largest clip bound")
    minimum_survivors: int = Field(ge=2, description="smallest sum it will be part of")
    tolerated_colluders: Annotated[int, within("tolerated_colluders")] = Field(
        description="of all in the registry: any cohort's noise and thresholds allow for all",
    )
    smallest_cohort: Annotated[int, within("cohort")] = Field(
        default=2, description="fewest in a round"
    )
    largest_cohort: Annotated[int, within("cohort")] = Field(
        default=MAX_COHORT, description="most of them"
    )
    own_noise_multiplier: Annotated[float, within("own_noise_multiplier")] = Field(
        default=0.0,
        description="least noise of its own, over what one client can change",
    )
    block: int | None = Field(
        default=None,
        ge=2,
        description="rounds of a block, of which it comes to the one that its own coin says; any "
        "rounds if left out",
    )
    dimension: Annotated[int | None, within("dimension")] = Field(
        default=None, description="length of an update; any if out"
    )
    lifetime_seconds: int | None = Field(
        default=None, ge=1, description="longest that a round may live; if left out, even for ever"
    )
    mechanism: MechanismName = Field(default="binomial", description="the noise that it adds")
    moment_order: Annotated[float | None, within("moment_order")] = Field(
        default=None, description="as in a run's configuration"
    )
    allow_evaluation_in_the_clear: bool = Field(
        default=False,
        description="answers to evaluations leave as they are",
    )
    allow_queries_in_the_clear: bool = Field(default=False, description="likewise, to queries")
    evaluations: list[Annotated[str, Field(pattern="^[0-9a-f]{64}$")]] = Field(
        default=[],
        description="digests of the private evaluations that it answers, as the server logs them",
    )
    allow_declared_evaluation: bool = Field(
        default=False,
        description="the private evaluation that a run's configuration declares, whatever it is",
    )
    pairwise: PairwiseRules | None = Field(
        default=None, description="about pairwise rounds; refused if committee alone is given"
    )
    committee: CommitteeRules | None = Field(
        default=None, description="about one-shot or validated rounds; refused if left out"
    )
    returned: ReturnedRules | None = Field(
        default=None,
        description="about runs in which the named members' noise comes back; refused if left out",
    )
    authority: AuthorityRules | None = Field(
        default=None,
        description="who announces rounds and signs registry.json; with it registry.txt and "
        "committee.txt are not read. Anybody announces if left out",
    )
    name_refused_clauses: bool = Field(
        default=False, description="the server hears which of these a round did not meet"
    )

    @property
    def goal(self) -> PrivacyGoal:
        """What all rounds together may cost."""
        return PrivacyGoal(self.epsilon, self.delta, self.rounds, self.moment_order)

    @property
    def corrupt_members(self) -> int:
        """Members of a committee that may work for the server."""
        given = self.committee.corrupt if self.committee else None
        return self.tolerated_colluders if given is None else given

    def policy(
        self, named: frozenset[bytes] = frozenset(), drawn_from: Collection[bytes] = ()
    ) -> ClientPolicy:
        """What is held against every announcement.

        `ConfigurationError` if a draw is to have fewer corrupt clients than all else.

        Args:
            named: who may be on a named committee, or, of those below, still on a drawn one.
            drawn_from: keys of all who can be on a drawn committee.
        """
        schemes: list[Clauses] = []
        if self.pairwise is not None or self.committee is None:
            asked = self.pairwise or PairwiseRules()
            schemes.append(
                PairwiseClauses(
                    allow_semi_honest=asked.allow_semi_honest,
                    minimum_security_bits=asked.security_bits,
                )
            )
        if self.committee is not None:
            accepts = ValidatedPolicy if self.committee.scheme == "validated" else CommitteePolicy
            draw = self._draw(self.committee, drawn_from)
            schemes.append(
                accepts(
                    kind=CommitteeKind(self.committee.kind),
                    named=named,
                    corrupt=None if draw else self.corrupt_members,
                    smallest_threshold=self.committee.threshold,
                    largest_key_rounds=self.committee.key_rounds,
                    draw=draw,
                )
            )
        return ClientPolicy(
            minimum_noise_multiplier=self.goal.noise_multiplier,
            goal=self.goal,
            minimum_survivors=self.minimum_survivors,
            smallest_cohort=self.smallest_cohort,
            largest_cohort=self.largest_cohort,
            registry_colluders=self.tolerated_colluders,
            minimum_own_noise_multiplier=self.own_noise_multiplier,
            largest_clip_l2=self.clip_l2,
            dimension=self.dimension,
            mechanisms=(self.mechanism,),
            largest_lifetime_seconds=self.lifetime_seconds,
            schemes=tuple(schemes),
            returned=self.returned.clauses() if self.returned else None,
        )

    def _draw(self, asked: CommitteeRules, drawn_from: Collection[bytes]) -> DrawPolicy | None:
        """What is accepted of a draw; None if nobody is drawn."""
        if asked.odds is None or asked.size is None:
            return None
        if self.corrupt_members < self.tolerated_colluders:
            valid = f"at least {self.tolerated_colluders}, as tolerated_colluders, or left out: "
            valid += "members are drawn from the clients"
            raise ConfigurationError("committee.corrupt", f"value {self.corrupt_members}", valid)
        registry = Registry(sorted(drawn_from))
        return DrawPolicy(
            registry_root=registry.root,
            registry_size=len(registry),
            odds=round(asked.odds * CERTAIN),
            corrupt_identities=self.corrupt_members,
            smallest=asked.size,
        )


@dataclass(frozen=True)
class ClientHome:
    """The folder, read when something is needed from it.

    Every reader raises `ConfigurationError`, which names the file and what it should hold.

    Attributes:
        folder: of this client.
        other_rules: in place of those in the policy file.
        admission: of a request that somebody signed, which the policy has an [authority] for.
    """

    folder: Path
    other_rules: ClientRules | None = None
    admission: Admission | None = None

    def admitting(
        self, envelope: Envelope, run: str, app: bytes | None, about: About
    ) -> ClientHome:
        """This folder, for the one round that a signed request is about.

        Raises:
            PolicyError, RemoteProtocolError, ConfigurationError: as `SiteAuthority.admit` does.
        """
        authority = self.authority
        if authority is None:
            return self
        with _files(self.folder / STATE):
            admission = authority.admit(envelope, self.identity.public, run, app, about)
        return ClientHome(self.folder, self.other_rules, admission)

    @property
    def authority(self) -> SiteAuthority | None:
        """Who may announce rounds; None for anybody."""
        rules = self.rules.authority
        return SiteAuthority(self.folder, rules, Clock().unix, warn) if rules else None

    @cached_property
    def identity(self) -> Identity:
        """This client's signing key."""
        return read_identity(self.folder / IDENTITY)

    @cached_property
    def registry(self) -> frozenset[bytes]:
        """Public keys of all clients that are known."""
        if self.rules.authority is not None:
            return self.admission.clients if self.admission else self._active("client")
        return read_registry(self.folder / REGISTRY)

    @cached_property
    def rules(self) -> ClientRules:
        """What this client insists on."""
        return self.other_rules or load(self.folder / POLICY, ClientRules)

    @cached_property
    def committee(self) -> frozenset[bytes]:
        """Public keys of those who may open sums: a named committee's, or still drawn; else none.

        Where nobody signs, everybody in the registry can be drawn, and none need be named.
        """
        kind = self.rules.committee.kind if self.rules.committee else "everyone"
        if kind == "drawn" and self.rules.authority is not None:
            return self.registry
        if kind != "named":
            return frozenset()
        if self.rules.authority is not None:
            return self.admission.members if self.admission else self._active("member")
        return read_registry(self.folder / COMMITTEE)

    def _active(self, role: Role) -> frozenset[bytes]:
        return self._newest().active(role, Clock().unix())

    def _newest(self) -> SignedRegistry:
        authority = of_kind("authority", self.authority, SiteAuthority)
        with _files(self.folder / STATE):
            return authority.newest()

    @cached_property
    def policy(self) -> ClientPolicy:
        """What is held against every announcement."""
        if self.rules.committee is None or self.rules.committee.kind != "drawn":
            return self.rules.policy(self.committee)
        if self.rules.authority is None:
            drawn_from = self.registry
        elif self.admission is not None:
            drawn_from = self.admission.registered
        else:
            drawn_from = self._newest().registered("client")
        return self.rules.policy(self.committee, drawn_from)

    @contextmanager
    def member_history(self) -> Iterator[StoredHistory]:
        """What we signed before as a member of committees; locked for this process meanwhile."""
        folder = self.folder / STATE / "member"
        require_member(self.folder, self.identity.public)
        with _files(folder), StoredHistory(folder) as opened:
            yield opened

    @contextmanager
    def adding(self) -> Iterator[AddingMember | None]:
        """What we added to rounds as a member; None where our policy adds none.

        Where somebody signs, it was made with the identity: an empty one in its place would begin
        a run again that we have signed for.
        """
        if self.rules.returned is None:
            yield None
            return
        folder = self.folder / STATE / NOISE
        if self.authority is not None and not folder.is_dir():
            valid = "as it was made with the identity; or a new identity"
            raise ConfigurationError(str(folder), "what we added as a member is lost", valid)
        with _files(folder), StoredMemberNoise(folder) as memory:
            uploads = UploadFolder(self.folder / STATE / "added")
            yield AddingMember(
                memory=memory, uploads=uploads, fewest=self.rules.returned.fewest_members
            )

    def sealing(self) -> SealingFolder:
        """Our sealing keys as a member of committees."""
        self.require_own(self.folder / STATE / "member")  # else it would refuse its rounds
        with _files(self.folder / STATE):
            asked = self.rules.committee
            return self._sealing_folder(asked.key_rounds if asked else KEY_ROUNDS)

    def expire(self) -> None:
        """Erase sealing keys whose time is over, and with them the key of a round that is stored.

        Every message to the node does it; an operator can schedule it for a server that sends none.
        """
        with _files(self.folder / STATE):
            if self._sealing.is_dir():
                self._sealing_folder().expire()

    def _sealing_folder(self, rounds: int = KEY_ROUNDS) -> SealingFolder:
        return SealingFolder(self._sealing, Clock().unix, rounds, self.round_keys().clear)

    @property
    def _sealing(self) -> Path:
        return self.folder / STATE / "sealing"

    @property
    def turns(self) -> StoredTurns | None:
        """Our coins; None if our rules name no block of rounds."""
        block, folder = self.rules.block, self.folder / STATE / "turns"
        if block is None:
            return None
        with _files(folder):
            return StoredTurns(folder, block)

    def answer(self, question: Question) -> bytes:
        """Whether we come to a round; `PolicyError` if our rules have no such block."""
        turns = self.turns
        if turns is None:
            raise PolicyError("block", question.block, "any round: the policy names no block")
        # Else a folder that lost its history would draw again, and its own coins are lost with it.
        self.require_own(self.folder / STATE)
        return turns.answer(question)

    def uploads(self) -> UploadFolder:
        """Our last upload of a one-shot round."""
        with _files(self.folder / STATE):
            return UploadFolder(self.folder / STATE / "upload")

    @contextmanager
    def history(self, policy: ClientPolicy) -> Iterator[StoredHistory]:
        """What we did before; locked for this process meanwhile."""
        folder, authority = self.folder / STATE, self.require_own(self.folder / STATE)
        earlier = lost_rounds(self.folder, policy.goal)
        if authority is not None:
            with _files(folder):
                earlier += authority.earlier(self.identity.public, policy.goal)
        place = self.admission.take_place if self.admission else None
        with _files(folder), StoredHistory(folder, policy.goal, earlier, place) as opened:
            yield opened

    def require_own(self, history: Path) -> SiteAuthority | None:
        """See, where somebody signs, that a history is there, and is that of our identity.

        Owner and histories are made where the identity is made, and nowhere else: a key that is put
        beside an empty folder, or a folder that is put below another key, would count nothing.
        """
        if self.authority is None:
            return None
        path, own = self.folder / STATE / OWNER, self.identity.public
        if own not in read_registry(path):
            valid = f"{own.hex()} in it, if this folder has all that this client ever spent"
            raise ConfigurationError(str(path), "without this client's key", valid)
        if not StoredHistory.is_in(history):
            valid = "charges.jsonl and answered/, as they were made with the identity"
            raise ConfigurationError(str(history), "a part of the history is lost", valid)
        return self.authority

    def round_keys(self) -> TokenFolder:
        """The keys of rounds that are stored between two messages."""
        with _files(self.folder / STATE):
            return TokenFolder(self.folder / STATE / "keys")


def home_of(context: Context) -> ClientHome:
    """The folder of the client that a context belongs to."""
    named = context.node_config.get(HOME_KEY)
    if named is None and not may_be_simulated():
        raise ConfigurationError(
            HOME_KEY,
            "missing from the node's configuration; outside a simulation, a run cannot set it",
            "the client's folder, as in --node-config 'veilsum.home=\"/srv/veilsum\"'; to simulate "
            f"on an engine other than Flower's, {SIMULATION_VARIABLE}=1 in the environment",
        )
    if named is None:
        named = _simulated(context.run_config, context.node_config, context.run_id)
    folder = _absolute(HOME_KEY, named)
    if not folder.is_dir():
        valid = (
            "a folder that was provisioned; in a simulation, simulated-clients as num-supernodes"
        )
        raise ConfigurationError(HOME_KEY, f"no folder {folder}", valid)
    return ClientHome(folder)


def may_be_simulated() -> bool:
    """Whether this process plays a client of a simulation: by what it is, not by what it is told.

    A deployed node is never an actor of Flower's engine, and nobody but its operator sets its
    environment.
    """
    if os.environ.get(SIMULATION_VARIABLE) == "1":
        return True
    ray = sys.modules.get("ray")
    if ray is None or SIMULATION_ENGINE not in sys.modules or not ray.is_initialized():
        return False
    return ray.get_runtime_context().get_actor_id() is not None


def client_folder(network: Path, number: int) -> Path:
    """Where a network that was made in one place keeps a client."""
    return network / f"client-{number:03d}"


def simulated_network(root: Path, run_id: int) -> Path:
    """Where a simulation keeps its clients.

    There is a folder for each run: identities must not outlive it, or their histories would count
    the runs together.
    """
    return root / str(run_id)


def _simulated(run: Mapping[str, Any], node: Mapping[str, Any], run_id: int) -> str:
    root = values_of(run).get(SIMULATION_KEY, SIMULATION_FOLDER)
    partition = node.get("partition-id")
    if not isinstance(root, str) or not isinstance(partition, int):
        raise ConfigurationError(
            HOME_KEY,
            "missing from the node's configuration",
            "the client's folder, as in --node-config 'veilsum.home=\"/srv/veilsum\"', or, in a "
            f"simulation, veilsum.{hyphened(SIMULATION_KEY)} in the run's configuration",
        )
    root_folder = _absolute(f"veilsum.{hyphened(SIMULATION_KEY)}", root)
    return str(client_folder(simulated_network(root_folder, run_id), partition))


def _absolute(key: str, path: object) -> Path:
    if not isinstance(path, str) or not Path(path).expanduser().is_absolute():
        raise ConfigurationError(key, f"value {path!r}", "an absolute path")
    return Path(path).expanduser()


def read_registry(path: Path) -> frozenset[bytes]:
    """Identity keys from their file; lines that begin with # are remarks."""
    with _files(path):
        lines = [line.strip() for line in path.read_text("ascii", "replace").splitlines()]
    return frozenset(read_key(path, line) for line in lines if line and not line.startswith("#"))


def read_known(path: Path, role: Role = "client") -> frozenset[bytes]:
    """Identity keys from a file of either kind, for a server: it trusts whoever signed the one."""
    with _files(path), path.open("rb") as file:
        first = file.read(1)
    if first != b"{":
        return read_registry(path)
    return read_signed(read_file(path), None).active(role, Clock().unix())


@contextmanager
def _files(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        problem = error.strerror or os.strerror(error.errno or 0)
        raise ConfigurationError(
            str(path), problem, "a file or folder that this user can use"
        ) from None
