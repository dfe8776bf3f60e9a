"""Makes clients' folders for a deployment, and refuses a policy that no round can meet.

`veilsum provision` is its command. Rules are held against the kindest round: the largest cohort, no
losses, and as much noise as a round may add.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from dp import DiscreteGaussianMechanism
from protocol.adapters.flower.folders import Network, new_client, new_network
from protocol.adapters.flower.home import IDENTITY, ClientRules, CommitteeRules, client_folder
from protocol.adapters.private_files import read_identity, write_identity
from protocol.authority.quota import DAY
from protocol.authority.registrar import enrolled, first, successor
from protocol.authority.registry import signed as signed_file
from protocol.authority.site import SIGNED_REGISTRY, AuthorityRules
from protocol.checks import RANGES, of_kind
from protocol.errors import ConfigurationError
from protocol.noise.noise import Independent
from protocol.planning.configuration import LIFETIME_SECONDS
from protocol.planning.training_plan import TrainingPlan
from protocol.round.clauses import PairwiseClauses
from protocol.round.parameters import DIGEST_BYTES
from protocol.schemes import OneShot, Pairwise, Scheme, Validated
from protocol.schemes.committee import (
    CommitteeNumbers,
    CommitteePlan,
    Drawn,
    Everyone,
    Named,
    committee_numbers,
)
from protocol.schemes.validated import validated_numbers
from secagg import Identity, Mode, ParameterError
from secagg.keys import KEY_BYTES
from secagg.oneshot.committee import MAX_MEMBERS
from secagg.storage import replace_durably
from sketch import PublicSeed, SketchSpec
from sketch.hashing import SEED_BYTES

_USUAL = (32.0, 8.0, 1.0)
"""What is tried where the noise for the goal itself would be too little to be drawn."""

_DIVISIBLE = DiscreteGaussianMechanism.name
"""Noise of which members add a part."""

_REGISTRY_DAYS, _KEY_DAYS = 30, 365
_JOINS_PER_HOUR, _ROUNDS_PER_DAY = 60, 500
"""What a signed network begins with."""

__all__ = ["new_client", "provision_network", "require_feasible"]


def provision_network(
    out: Path, clients: int, rules: ClientRules, named: int = 0, signed: bool = False
) -> Network:
    """Write all clients' folders and the server's registry, if a round can meet the rules.

    Args:
        named: how many clients, the first ones, are the members of a named committee.
        signed: rounds and registry are signed, by an announcer and a registrar made here.

    Raises:
        ConfigurationError, ParameterError: as `require_feasible`; or the folder has a client, whose
            key is not written over.
    """
    require_feasible(rules, clients, named)
    try:
        return (_signed_network if signed else new_network)(out, clients, rules, named)
    except FileExistsError as error:
        raise ConfigurationError("out", f"{error.filename} exists", "a new folder") from None


def _signed_network(out: Path, clients: int, rules: ClientRules, named: int) -> Network:
    """The same as `new_network`, with the keys of an announcer and of a registrar."""
    registrar, announcer = Identity.generate(), Identity.generate()
    authority = AuthorityRules(
        registrars=[registrar.public.hex()],
        announcers=[announcer.public.hex()],
        joins_per_hour=_JOINS_PER_HOUR,
        rounds_per_day=_ROUNDS_PER_DAY,
        largest_registry_age_seconds=_REGISTRY_DAYS * DAY,
    )
    network = new_network(out, clients, rules.model_copy(update={"authority": authority}), named)
    write_identity(out / "registrar.key", registrar)
    write_identity(out / "announcer.key", announcer)
    now = time.time()
    registry = first(now, _REGISTRY_DAYS)
    for number in range(clients):
        home, roles = client_folder(out, number), ["client", "member"][: 1 + (number < named)]
        key = read_identity(home / IDENTITY).public.hex()
        entries = enrolled(registry, home.name, key, roles, None, now, _KEY_DAYS)
        registry = successor(registry, entries, now, _REGISTRY_DAYS)
    for folder in (out, *(client_folder(out, number) for number in range(clients))):
        replace_durably(folder / SIGNED_REGISTRY, signed_file(registry, registrar))
    return network


def require_feasible(rules: ClientRules, clients: int, named: int = 0) -> None:
    """See that there is a round that clients with these rules would take part in.

    `own_noise_multiplier` is not looked at: how much one client may add depends on the plan.

    Args:
        clients: all there are.
        named: members of a named committee.

    Raises:
        ConfigurationError: names the rule that no round can meet, and a value that one can.
        ParameterError: likewise, of a figure that is out of range or of noise that cannot be had.
    """
    RANGES["cohort"].require("clients", clients)
    kind = rules.committee.kind if rules.committee else "everyone"
    most = min(clients, MAX_MEMBERS)
    seats = rules.committee.size if rules.committee and kind == "drawn" else named
    if kind != "everyone" and not 2 <= (seats or 0) <= most:
        valid = f"2 .. {most}: members are clients"
        raise ConfigurationError("committee_size", f"value {seats}", valid)
    if rules.committee and kind == "drawn":
        _require_drawn(rules, rules.committee, clients)
    imagined = [number.to_bytes(KEY_BYTES, "little") for number in range(clients)]
    policy = rules.policy(frozenset(imagined[:1] if kind == "named" else ()), imagined)
    cohort = min(clients, rules.largest_cohort)
    if rules.returned is not None:
        if kind != "named" or rules.mechanism != _DIVISIBLE:
            valid = f'left out, or committee.kind = "named" and mechanism = "{_DIVISIBLE}"'
            raise ConfigurationError("returned", "a table", valid)
        # Members are no clients of such a run, and the others take turns.
        others, fewest = clients - named, max(rules.smallest_cohort, rules.minimum_survivors)
        apart, most = rules.returned.apart, others // fewest
        _require_at_most("returned.apart", apart, most, f"as {others} clients are no members")
        cohort = min(others // apart, rules.largest_cohort)
    for name in ("smallest_cohort", "minimum_survivors"):
        _require_at_most(name, getattr(rules, name), cohort, "the largest cohort")
    if rules.block is not None and (clients % rules.block or clients == rules.block):
        valid = f"one that divides the {clients} clients, of whom a part comes to each round"
        raise ConfigurationError("block", f"value {rules.block}", valid)
    for clauses in policy.schemes:
        if isinstance(clauses, PairwiseClauses):
            # The complete graph loses nobody to chance.
            mode = Mode.SEMI_HONEST if clauses.allow_semi_honest else Mode.ACTIVE
            _require_round(rules, cohort, Pairwise(mode=mode, degree=0))
        else:
            fitting = min(cohort, MAX_MEMBERS) if kind == "everyone" else cohort
            _require_at_most(
                "minimum_survivors", rules.minimum_survivors, fitting, "the largest committee"
            )
            _require_round(rules, fitting, _one_shot(rules, named, fitting))


def _require_drawn(rules: ClientRules, asked: CommitteeRules, clients: int) -> None:
    """See that about every other draw has enough candidates: the median is next to the mean."""
    _require_at_most("committee.corrupt", rules.corrupt_members, clients, "all clients")
    odds, size = of_kind("odds", asked.odds, float), of_kind("size", asked.size, int)
    if math.ceil(odds * clients) < size:
        valid = f"more than {(size - 1) / clients}: of {clients} clients {size} are to be drawn"
        raise ConfigurationError("committee.odds", f"value {odds}", valid)


def _one_shot(rules: ClientRules, named: int, cohort: int) -> OneShot:
    """One-shot rounds with a committee that the rules accept, none of its honest members away."""
    asked = of_kind("committee", rules.committee, CommitteeRules)

    def planned(corrupt: int) -> CommitteePlan:
        if asked.kind == "named":
            return Named(size=named, corrupt=corrupt, away=0)
        if asked.size is None or asked.odds is None:
            return Everyone()
        return Drawn(size=asked.size, corrupt=corrupt, away=0, odds=asked.odds)

    numbers_of = validated_numbers if asked.scheme == Validated.KIND else committee_numbers
    colluders, corrupt = rules.tolerated_colluders, rules.corrupt_members
    if asked.kind == "everyone":
        corrupt = max(corrupt, colluders)

    def numbers(few: int) -> CommitteeNumbers:
        return numbers_of(*planned(few).seats(cohort, few, 0))

    _require_works("committee.corrupt", corrupt, numbers)
    found = numbers(corrupt)
    most = found.randomness + found.per_polynomial
    why = f"the highest of {found.size} members, {found.corrupt} corrupt"
    _require_at_most("committee.threshold", asked.threshold, most, why)
    scheme = Validated if asked.scheme == Validated.KIND else OneShot
    return scheme(committee=planned(corrupt))


def _require_round(rules: ClientRules, cohort: int, scheme: Scheme) -> None:
    """See that a plan of the scheme has a round, with noise for the whole goal."""

    def plan(colluders: int, epsilon: float = rules.goal.epsilon) -> TrainingPlan:
        return TrainingPlan(
            goal=replace(rules.goal, epsilon=epsilon),
            cohort=cohort,
            tolerated_dropouts=0,
            tolerated_colluders=colluders,
            clip_l2=rules.clip_l2,
            noise=Independent(mechanism=rules.mechanism),
            scheme=scheme,
            error_share=RANGES["error_share"].high,
            lifetime_seconds=rules.lifetime_seconds or LIFETIME_SECONDS,
        )

    _require_works("tolerated_colluders", rules.tolerated_colluders, plan)
    # Any length will do, as updates may be compressed, and any epsilon up to the goal's.
    sketch = SketchSpec.identity(1)
    digest, seed = bytes(DIGEST_BYTES), PublicSeed(bytes(SEED_BYTES))
    refused: ParameterError | None = None
    for epsilon in (rules.goal.epsilon, *(each for each in _USUAL if each < rules.goal.epsilon)):
        try:
            plan(rules.tolerated_colluders, epsilon).calibrate(sketch, digest, seed)
            return
        except ParameterError as error:
            refused = refused or error
    if refused is not None:
        raise refused


def _require_at_most(name: str, value: int, most: int, why: str) -> None:
    if value > most:
        raise ConfigurationError(name, f"value {value}", f"at most {most}, {why}")


def _require_works(name: str, value: int, make: Callable[[int], object]) -> None:
    """See that something can be made with a number; if not, name the largest with which it can."""

    def fails(number: int) -> bool:
        try:
            make(number)
        except ParameterError:
            return True
        return False

    most = bisect_left(range(value + 1), True, key=fails) - 1
    if most < 0:
        make(0)  # raises: the number is not what is wrong
    _require_at_most(name, value, most, "all else unchanged")
