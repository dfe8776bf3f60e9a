"""A33 to A38: a server that wants two sums of one one-shot round, or one that is too thin.

Corrupt members sign whatever they are shown; corrupt clients are in every set.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import numpy as np

from secagg import Identity
from secagg.oneshot.context import Cohort, OneShotContext
from secagg.oneshot.gaussian import CUT
from secagg.oneshot.messages import Upload
from secagg.oneshot.packed_sharing import interpolate
from secagg.shamir import PRIME
from simulations.audits.base import Figures
from simulations.threats.attack import Attack, Effort, Findings, rate
from simulations.threats.game.contexts import Integers, counter_rand
from simulations.threats.one_shot.opened import two_keys, vector_sum
from simulations.threats.one_shot.parties import (
    OneShotSetting,
    OneShotVictims,
    committee_of,
    delivery,
    shown,
    signed,
    submitted,
)
from simulations.threats.one_shot.play import Split, Trial, play
from simulations.threats.one_shot.weak import (
    BelievesHeaders,
    SignsAgain,
    neither,
    no_agreement,
    no_minimum,
    unbound,
    weakened,
)

_SETTING: Final = OneShotSetting()
_TARGET: Final = 0

Told = Callable[[OneShotContext], OneShotContext]


# -- A33 ------------------------------------------------------------------------------------------


def _another_model(context: OneShotContext) -> OneShotContext:
    return replace(context, application_digest=b"\1" * 32)


def _another_minimum(context: OneShotContext) -> OneShotContext:
    return replace(context, minimum_survivors=context.size)


def _another_committee(context: OneShotContext) -> OneShotContext:
    """Other members, as honest as the first ones."""
    return replace(context, committee=committee_of(context.committee.size, 1, first=100))


def _told_alone(told: Told, bound: bool) -> Trial:
    """The target alone is told another context, and its upload is shown to everybody."""

    def trial(victims: OneShotVictims, inputs: Integers, rng: np.random.Generator) -> bool:
        context = victims.context
        other = told(context) if bound else unbound(told(context))
        uploads = victims.uploads(inputs)
        uploads[_TARGET] = victims.upload(_TARGET, inputs[_TARGET], other)
        split = Split(
            victims,
            {j: uploads for j in victims.honest_members},
            {j: range(context.size) for j in victims.honest_members},
        )
        opened = split.run()
        if bound and told is _another_committee:
            opened += _asked_there(victims, other, uploads[_TARGET])
        return bool(opened)

    return trial


def _asked_there(
    victims: OneShotVictims, context: OneShotContext, upload: Upload
) -> list[tuple[tuple[Upload, ...], Integers]]:
    """The committee that the target was told of is asked for its upload alone."""
    there = OneShotVictims(replace(victims.setting, corrupt=0), context, b"")
    everybody = range(context.committee.size)
    sessions = {j: there.member(j, context, 100 + j) for j in everybody}
    for j, session in sessions.items():
        shown(there, session, j, {upload.sender: upload})
    uploads = {j: {upload.sender: upload} for j in everybody}
    sets = {j: [upload.sender] for j in everybody}
    opened = Split(there, uploads, sets, sessions=sessions).run()
    victims.refusals.update(there.refusals)
    return opened


def _contexts(effort: Effort, seed: int) -> Findings:
    trials = effort.choose(5, 60)
    stories = (_another_model, _another_minimum, _another_committee)
    real = [play(_told_alone(told, True), _SETTING, trials, seed) for told in stories]
    # A member of the first committee cannot open what was sealed for another one's key.
    twin = [
        play(_told_alone(told, False), _SETTING, trials, seed, change=unbound)
        for told in stories[:2]
    ]
    return Findings(_all(real), _all(twin))


def _all(played: list[Figures]) -> Figures:
    """The stories of one attack, counted together, with the first one's refusal."""
    won = sum(int(each["successes"]) for each in played)
    trials = sum(int(each["trials"]) for each in played)
    return {**played[0], **rate(won, trials), "stories": len(played)}


# -- A34 ------------------------------------------------------------------------------------------


def _halves(forged: bool) -> Trial:
    """Half of the committee is asked for everybody, the other half for all but the target."""

    def trial(victims: OneShotVictims, inputs: Integers, rng: np.random.Generator) -> bool:
        uploads = victims.uploads(inputs)
        everybody = range(victims.context.size)
        members = rng.permutation(victims.honest_members).tolist()
        half = -(-len(members) // 2)
        sets = {
            j: [u for u in everybody if k < half or u != _TARGET] for k, j in enumerate(members)
        }
        split = Split(victims, {j: uploads for j in members}, sets, forged=forged)
        return _difference_is(split.run(), inputs[_TARGET])

    return trial


def _difference_is(opened: list[tuple[tuple[Upload, ...], Integers]], wanted: Integers) -> bool:
    """Whether two sums opened that differ by this vector."""
    sums = [total for _, total in opened]
    return any(np.array_equal(a - b, wanted) for a in sums for b in sums if a is not b)


def _two_sets(effort: Effort, seed: int) -> Findings:
    trials = effort.choose(10, 200)
    real = [play(_halves(forged), _SETTING, trials, seed) for forged in (False, True)]
    return Findings(_all(real), play(_halves(False), _SETTING, trials, seed, member=no_agreement))


# -- A35 ------------------------------------------------------------------------------------------

_THREE: Final = OneShotSetting(clients=2, colluders=0, members=10, corrupt=0, randomness=5)
"""2T >= s + c, which two groups of members cannot get around."""
_FIRST, _SECOND, _BOTH = (0, 1, 2, 3), (4, 5, 6, 9), (7, 8)
_GROUPS: Final = {
    **dict.fromkeys(_FIRST, (0,)),
    **dict.fromkeys(_SECOND, (1,)),
    **dict.fromkeys(_BOTH, (0, 1)),
}
"""By member, the clients it is asked for. One of 150 choices of 59049 that give something away."""


def _three_groups(victims: OneShotVictims, inputs: Integers, rng: np.random.Generator) -> bool:
    """One combination of two keys, of which both are small: each entry is looked up."""
    context = victims.context
    uploads = victims.uploads(inputs)
    split = Split(victims, dict.fromkeys(_GROUPS, uploads), _GROUPS)
    given = {j: share for shares in split.shares().values() for j, share in shares.items()}
    if len(given) < len(_GROUPS):
        return False
    first, second = _weights(_FIRST + _BOTH), _weights(_SECOND + _BOTH)
    # Where both are asked for, the weights have one ratio: that is what the groups are chosen for.
    ratio, other = (first[j] * pow(second[j], -1, PRIME) % PRIME for j in _BOTH)
    if ratio != other:
        raise ValueError("these groups give nothing away")
    weights = {**{j: ratio * w for j, w in second.items()}, **first}
    total = sum(share.astype(object) * weights[j] for j, share in given.items())
    combined = np.array(total % PRIME, np.int64)[: context.degree]
    keys = two_keys(combined, 1, ratio, CUT)
    if keys is None:
        return False
    read = [vector_sum(context, [uploads[u]], keys[u].astype(np.int64)) for u in (0, 1)]
    return all(x is not None and np.array_equal(x, inputs[u]) for u, x in enumerate(read))


def _weights(members: tuple[int, ...]) -> dict[int, int]:
    """With which the shares of these members give the secret."""
    unit = np.eye(len(members), dtype=np.uint32)
    row = interpolate(unit, members, 1)[:, 0].tolist()
    return dict(zip(members, row, strict=True))


def _groups(effort: Effort, seed: int) -> Findings:
    trials = effort.choose(3, 30)
    real = play(_three_groups, _THREE, trials, seed)
    # The minimum is not what this is about: without it, the signatures still suffice.
    agreed = play(_three_groups, _THREE, trials, seed, member=no_minimum)
    lost = bool(real["succeeded"] or agreed["succeeded"])
    return Findings(
        {
            **real,
            "succeeded": lost,
            "without_minimum_successes": agreed["successes"],
            "without_minimum_refused_with": agreed.get("refused_with", "nobody refused"),
        },
        play(_three_groups, _THREE, trials, seed, member=neither),
    )


# -- A36 ------------------------------------------------------------------------------------------


def _asked_again(early: bool) -> Trial:
    """Each member is asked for a second set: when it has signed the first, or answered on it."""

    def trial(victims: OneShotVictims, inputs: Integers, rng: np.random.Generator) -> bool:
        uploads = victims.uploads(inputs)
        members, everybody = victims.honest_members, range(victims.context.size)
        shown_to = {j: uploads for j in members}
        first = Split(victims, shown_to, {j: everybody for j in members})
        rest = {j: [u for u in everybody if u != _TARGET] for j in members}
        if early:
            first.sessions = {j: victims.member(j) for j in members}
            for j, session in first.sessions.items():
                shown(victims, session, j, uploads)
                signed(victims, session, everybody)
            return bool(Split(victims, shown_to, rest, sessions=first.sessions).run())
        opened = first.run()
        opened += Split(victims, shown_to, rest, sessions=first.sessions).run()
        return _difference_is(opened, inputs[_TARGET])

    return trial


_SET_BACK: Final = replace(_SETTING, corrupt=0)
"""No member is corrupt: the one that is set back counts as such."""


def _restored(count: int) -> Trial:
    """Some members are set back after they have answered, and sign with the others."""

    def trial(victims: OneShotVictims, inputs: Integers, rng: np.random.Generator) -> bool:
        uploads = victims.uploads(inputs)
        members = rng.permutation(victims.context.committee.size).tolist()
        everybody = range(victims.context.size)
        quorum = victims.context.committee.quorum
        first = {j: everybody for j in members[:quorum]}
        second = {
            j: [u for u in everybody if u != _TARGET] for j in members[quorum:] + members[:count]
        }
        opened = Split(victims, {j: uploads for j in first}, first).run()
        opened += Split(victims, {j: uploads for j in second}, second).run()
        return _difference_is(opened, inputs[_TARGET])

    return trial


def _tolerating_one(context: OneShotContext) -> OneShotContext:
    return replace(context, committee=committee_of(context.committee.size, 1))


def _asked_twice(effort: Effort, seed: int) -> Findings:
    trials = effort.choose(5, 100)
    real = [play(_asked_again(early), _SETTING, trials, seed) for early in (False, True)]
    real.append(play(_restored(1), _SET_BACK, trials, seed, change=_tolerating_one))
    twin = play(_asked_again(False), _SETTING, trials, seed, member=SignsAgain)
    beyond = play(_restored(3), _SET_BACK, trials, seed, change=_tolerating_one)
    return Findings(_all(real), {**twin, "three_set_back_successes": beyond["successes"]})


# -- A37 ------------------------------------------------------------------------------------------


def _impostors(victims: OneShotVictims, inputs: Integers, rng: np.random.Generator) -> bool:
    """Everybody but the target is played by the server, which knows what they put in."""
    context = victims.context
    keys = [_impostor(u) for u in range(context.size)]
    cohort = Cohort([identity.public for identity in keys])
    believed = weakened(context, cohort_root=cohort.root)
    uploads = {_TARGET: victims.upload(_TARGET, inputs[_TARGET])}
    for u in range(1, context.size):
        rand = counter_rand(rng.bytes(8))
        double = type(victims.client(u))(believed, u, keys[u], cohort.proof(u), rand)
        uploads[u] = submitted(double, np.zeros(context.length, np.int64))
    members = victims.honest_members
    sets = {j: range(context.size) for j in members}
    opened = Split(victims, {j: uploads for j in members}, sets).run()
    return any(np.array_equal(total, inputs[_TARGET]) for _, total in opened)


def _impostor(u: int) -> Identity:
    return Identity.from_private_bytes(bytes([u]) * 32)


def _twins(victims: OneShotVictims, inputs: Integers, rng: np.random.Generator) -> bool:
    """A colluder's upload stands in the place of all but the target's."""
    own = max(victims.setting.own_clients)
    single = victims.upload(own, inputs[own])
    uploads = {u: single for u in range(victims.context.size)}
    uploads[_TARGET] = victims.upload(_TARGET, inputs[_TARGET])
    members = victims.honest_members
    sets = {j: range(victims.context.size) for j in members}
    return bool(Split(victims, {j: uploads for j in members}, sets).run())


def _absentees(victims: OneShotVictims, inputs: Integers, rng: np.random.Generator) -> bool:
    """The set names clients that uploaded nothing."""
    own = max(victims.setting.own_clients)
    uploads = {u: victims.upload(u, inputs[u]) for u in (_TARGET, own)}
    signatures = []
    for j in victims.honest_members:
        session = victims.member(j)
        shown(victims, session, j, uploads)
        signatures.append(signed(victims, session, range(victims.context.size)))
    return any(signature is not None for signature in signatures)


def _another_cohort(victims: OneShotVictims, inputs: Integers, rng: np.random.Generator) -> bool:
    """Members are shown other identities than those under the announced root."""
    keys = [_impostor(u).public for u in range(victims.context.size)]
    upload = {_TARGET: victims.upload(_TARGET, inputs[_TARGET])}
    answers = [
        victims.ask(victims.member(j), delivery(victims.context, j, upload, keys))
        for j in victims.honest_members
    ]
    return any(each is not None for each in answers)


def _strangers(effort: Effort, seed: int) -> Findings:
    trials = effort.choose(5, 60)
    stories = (_impostors, _twins, _absentees, _another_cohort)
    return Findings(
        _all([play(story, _SETTING, trials, seed) for story in stories]),
        play(_impostors, _SETTING, trials, seed, member=BelievesHeaders),
    )


# -- A38 ------------------------------------------------------------------------------------------


def _thin(victims: OneShotVictims, inputs: Integers, rng: np.random.Generator) -> bool:
    """The target and the server's own clients, whose inputs it subtracts."""
    uploads = victims.uploads(inputs)
    own = victims.setting.own_clients
    members = victims.honest_members
    sets = {j: (_TARGET, *own) for j in members}
    opened = Split(victims, {j: uploads for j in members}, sets).run()
    known = inputs[list(own)].sum(axis=0)
    return any(np.array_equal(total - known, inputs[_TARGET]) for _, total in opened)


def _too_small(effort: Effort, seed: int) -> Findings:
    trials = effort.choose(10, 200)
    return Findings(
        play(_thin, _SETTING, trials, seed),
        play(_thin, _SETTING, trials, seed, member=no_minimum),
    )


ATTACKS: Final = (
    Attack(
        id="A33",
        promise="P11",
        name="another context for one client",
        title="An upload for another context or committee is in no sum",
        says="tells the target alone of another model, minimum or committee, and shows its "
        "upload to the first committee, or asks the other one for it",
        stopped_by="the context's hash in headers, seals and ring elements",
        refused_with="RemoteProtocolError SET_NOT_NESTED",
        run=_contexts,
    ),
    Attack(
        id="A34",
        promise="P11",
        name="two sets for two halves",
        title="Two halves of a committee never open two sums",
        says="asks half of a committee for everybody and the other half for all but the "
        "target; shows signatures on the other set",
        stopped_by="a quorum's signatures on the set that a member signed itself",
        refused_with="RemoteProtocolError MISSING_SIGNATURES",
        see=("span.md#one-shot-rounds",),
        run=_two_sets,
    ),
    Attack(
        id="A35",
        promise="P11",
        name="three groups of members",
        title="Three groups of members never give a combination of two keys",
        says="asks three groups for two clients, for one and for the other: a combination of "
        "both keys is left, and every entry of it is looked up",
        stopped_by="an agreement on one set, which no number of random coefficients replaces; the "
        "twin has none, and T so large that two groups get nothing",
        refused_with="RemoteProtocolError SET_TOO_SMALL",
        run=_groups,
    ),
    Attack(
        id="A36",
        promise="P11",
        name="a member asked twice, or set back",
        title="A member that is asked twice, or set back, opens no second sum",
        says="asks for a second set after the signature, or after the answer; sets c members back",
        stopped_by="a state that is used once, a quorum that allows for c members set back",
        refused_with="SessionAbortedError",
        see=("span.md#one-shot-rounds",),
        run=_asked_twice,
    ),
    Attack(
        id="A37",
        promise="P11",
        name="strangers and duplicates in a set",
        title="Every upload in a sum is one of another member of the announced cohort",
        says="plays all others under their names; sends one upload in many names; names "
        "clients that sent nothing; shows another cohort",
        stopped_by="headers verified under the identities of the announced root",
        refused_with="RemoteProtocolError SET_NOT_NESTED",
        run=_strangers,
    ),
    Attack(
        id="A38",
        promise="P11",
        name="a set that is too small",
        title="No committee opens a sum over fewer uploads than agreed",
        says="asks for the target and its own clients",
        stopped_by="each member's own minimum",
        refused_with="RemoteProtocolError SET_TOO_SMALL",
        see=("span.md#one-shot-rounds",),
        run=_too_small,
    ),
)
