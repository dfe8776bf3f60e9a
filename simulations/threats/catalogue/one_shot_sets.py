"""A33 to A38: a server that wants two sums of one one-shot round, or one over too few clients.

Corrupt members sign whatever they are shown; corrupt clients are in every set.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np

from secagg import Identity
from secagg.oneshot.context import Cohort, OneShotContext
from secagg.oneshot.gaussian import CUT
from secagg.oneshot.messages import Upload
from secagg.oneshot.packed_sharing import interpolate
from secagg.shamir import PRIME
from simulations.audits.base import Figures
from simulations.threats.attack import Attack, Effort, Findings, either, twins
from simulations.threats.game.contexts import counter_rand
from simulations.threats.game.weak_clients import unbound, weakened
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
from simulations.threats.one_shot.play import (
    Server,
    Split,
    Sums,
    Trial,
    difference_is,
    has,
    play,
    together,
)
from simulations.threats.one_shot.weak import (
    BelievesHeaders,
    SignsAgain,
    neither,
    no_agreement,
    no_minimum,
)

_SETTING: Final = OneShotSetting()


def _played(stories: Sequence[Trial], trials: int, seed: int, **how: Any) -> Figures:
    """Several stories of one attack, counted together, with the first one's refusal."""
    played = [play(story, _SETTING, trials, seed, **how) for story in stories]
    return together(played)


# -- A33 ------------------------------------------------------------------------------------------


def _changed(**terms: Callable[[OneShotContext], Any]) -> Callable[[OneShotContext], Any]:
    """Another context, with terms that are made of the honest one."""
    return lambda context: replace(context, **{name: made(context) for name, made in terms.items()})


_ANSWERED_ALONE: Final = (
    _changed(application_digest=lambda _: b"\1" * 32),
    _changed(minimum_survivors=lambda context: context.size),
    # Other members, as honest as the first ones.
    _changed(committee=lambda context: committee_of(context.committee.size, 1, first=100)),
)
"""Another model, another minimum, another committee."""


def _answered_alone(
    server: Server, told: Callable[[OneShotContext], OneShotContext], bound: bool = True
) -> bool:
    """The target alone is told another context, and its upload is shown to everybody."""
    other = told(server.victims.context)
    upload = server.upload(server.target, other if bound else unbound(other))
    opened = server.ask_all(uploads={**server.uploads, server.target: upload}).run()
    if bound and told is _ANSWERED_ALONE[-1]:
        opened += _asked_there(server.victims, other, upload)
    return bool(opened)


def _asked_there(victims: OneShotVictims, context: OneShotContext, upload: Upload) -> Sums:
    """The committee that the target was told of is asked for its upload alone."""
    there = OneShotVictims(replace(victims.setting, corrupt=0), context, b"")
    sessions = {j: there.member(j, context, 100 + j) for j in range(context.committee.size)}
    uploads, sets = {upload.sender: upload}, (upload.sender,)
    for j, session in sessions.items():
        shown(there, session, j, uploads)
    told = dict.fromkeys(sessions, uploads), dict.fromkeys(sessions, sets)
    opened = Split(there, *told, sessions=sessions).run()
    victims.refusals.update(there.refusals)
    return opened


def _contexts(effort: Effort, seed: int) -> Findings:
    trials = effort.choose(5, 60)
    stories = [partial(_answered_alone, told=told) for told in _ANSWERED_ALONE]
    # A member of the first committee cannot open what was sealed for another one's key.
    weak = [partial(story, bound=False) for story in stories[:2]]
    return Findings(_played(stories, trials, seed), _played(weak, trials, seed, change=unbound))


# -- A34 ------------------------------------------------------------------------------------------


def _halves(server: Server, forged: bool) -> bool:
    """Half of the committee is asked for everybody, the other half for all but the target."""
    sets = server.halved(server.everybody, server.others, more=1)
    opened = server.ask_each(sets, forged=forged).run()
    return difference_is(opened, server.inputs[server.target])


def _two_sets(effort: Effort, seed: int) -> Findings:
    trials = effort.choose(10, 200)
    stories = [partial(_halves, forged=forged) for forged in (False, True)]
    twin = play(stories[0], _SETTING, trials, seed, member=no_agreement)
    return Findings(_played(stories, trials, seed), twin)


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


def _three_groups(server: Server) -> bool:
    """One combination of two keys, of which both are small: each entry is looked up."""
    context, split = server.victims.context, server.ask_each(_GROUPS)
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
    read = [vector_sum(context, [server.uploads[u]], keys[u].astype(np.int64)) for u in (0, 1)]
    return all(x is not None and np.array_equal(x, server.inputs[u]) for u, x in enumerate(read))


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
    told = {
        "without_minimum_successes": agreed["successes"],
        "without_minimum_refused_with": agreed.get("refused_with", "nobody refused"),
    }
    return Findings(
        either(real, agreed, **told), play(_three_groups, _THREE, trials, seed, member=neither)
    )


# -- A36 ------------------------------------------------------------------------------------------


def _asked_again(server: Server, early: bool) -> bool:
    """Each member is asked for a second set: when it has signed the first, or answered on it."""
    if early:
        sessions = server.sessions()
        for session in sessions.values():
            signed(server.victims, session, server.everybody)
        return bool(server.ask_all(server.others, sessions=sessions).run())
    first = server.ask_all()
    opened = first.run()
    opened += server.ask_all(server.others, sessions=first.sessions).run()
    return difference_is(opened, server.inputs[server.target])


_SET_BACK: Final = replace(_SETTING, corrupt=0)
"""No member is corrupt: the one that is set back counts as such."""


def _restored(server: Server, count: int) -> bool:
    """Some members are set back after they have answered, and sign with the others."""
    committee = server.victims.context.committee
    members = server.rng.permutation(committee.size).tolist()
    first, rest = members[: committee.quorum], members[committee.quorum :]
    opened = server.ask_each(dict.fromkeys(first, server.everybody)).run()
    opened += server.ask_each(dict.fromkeys(rest + members[:count], server.others)).run()
    return difference_is(opened, server.inputs[server.target])


def _asked_twice(effort: Effort, seed: int) -> Findings:
    trials = effort.choose(5, 100)
    late, early = (partial(_asked_again, early=early) for early in (False, True))
    tolerating = _changed(committee=lambda context: committee_of(context.committee.size, 1))
    one, three = (
        play(partial(_restored, count=count), _SET_BACK, trials, seed, change=tolerating)
        for count in (1, 3)
    )
    real = [play(story, _SETTING, trials, seed) for story in (late, early)]
    twin = play(late, _SETTING, trials, seed, member=SignsAgain)
    return Findings(
        together([*real, one]), {**twin, "three_set_back_successes": three["successes"]}
    )


# -- A37 ------------------------------------------------------------------------------------------


def _impostors(server: Server) -> bool:
    """Everybody but the target is played by the server, which knows what they put in."""
    context = server.victims.context
    keys = [_impostor(u) for u in server.everybody]
    cohort = Cohort([identity.public for identity in keys])
    believed = weakened(context, cohort_root=cohort.root)
    uploads = {server.target: server.upload(server.target)}
    for u in server.others:
        rand = counter_rand(server.rng.bytes(8))
        double = type(server.victims.client(u))(believed, u, keys[u], cohort.proof(u), rand)
        uploads[u] = submitted(double, np.zeros(context.length, np.int64))
    return has(server.ask_all(uploads=uploads).run(), server.inputs[server.target])


def _impostor(u: int) -> Identity:
    return Identity.from_private_bytes(bytes([u]) * 32)


def _twins(server: Server) -> bool:
    """A colluder's upload stands in the place of all but the target's."""
    uploads = dict.fromkeys(server.everybody, server.upload(server.colluder))
    uploads[server.target] = server.upload(server.target)
    return bool(server.ask_all(uploads=uploads).run())


def _absentees(server: Server) -> bool:
    """The set names clients that uploaded nothing."""
    uploads = {u: server.upload(u) for u in (server.target, server.colluder)}
    sessions = server.sessions(uploads).values()
    answers = [signed(server.victims, session, server.everybody) for session in sessions]
    return any(signature is not None for signature in answers)


def _another_cohort(server: Server) -> bool:
    """Members are shown other identities than those under the announced root."""
    victims = server.victims
    keys = [_impostor(u).public for u in server.everybody]
    upload = {server.target: server.upload(server.target)}
    answers = [
        victims.ask(victims.member(j), delivery(victims.context, j, upload, keys))
        for j in victims.honest_members
    ]
    return any(each is not None for each in answers)


def _strangers(effort: Effort, seed: int) -> Findings:
    trials = effort.choose(5, 60)
    stories = (_impostors, _twins, _absentees, _another_cohort)
    twin = play(_impostors, _SETTING, trials, seed, member=BelievesHeaders)
    return Findings(_played(stories, trials, seed), twin)


# -- A38 ------------------------------------------------------------------------------------------


def _too_few(server: Server) -> bool:
    """The target and the server's own clients, whose inputs it subtracts."""
    chosen = [server.target, *server.victims.setting.own_clients]
    return has(server.ask_all(chosen).run(), server.inputs[chosen].sum(axis=0))


ATTACKS: Final = (
    Attack(
        id="A33",
        promise="P11",
        name="another context for one client",
        title="An upload for another context or committee is in no sum",
        says="tells only the target of another model, minimum or committee, and shows its upload "
        "to the first committee, or asks the other one for it",
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
        says="asks three groups for two clients, for one and for the other; a combination of both "
        "keys is left, every entry of which it looks up",
        stopped_by="agreement on one set, which no number of random coefficients replaces",
        refused_with="RemoteProtocolError SET_TOO_SMALL",
        run=_groups,
    ),
    Attack(
        id="A36",
        promise="P11",
        name="a member asked twice, or set back",
        title="A member that is asked twice, or set back, opens no second sum",
        says="asks for a second set after the signature, or after the answer; rolls c members back",
        stopped_by="a state that is used once, a quorum that allows for c members rolled back",
        refused_with="SessionAbortedError",
        see=("span.md#one-shot-rounds",),
        run=_asked_twice,
    ),
    Attack(
        id="A37",
        promise="P11",
        name="unregistered and duplicate uploads in a set",
        title="Every upload in a sum is one of another member of the announced cohort",
        says="impersonates all others; sends one upload under many names; names clients that sent "
        "nothing; shows another cohort",
        stopped_by="headers verified under the identities of the announced root",
        refused_with="RemoteProtocolError SET_NOT_NESTED",
        run=_strangers,
    ),
    Attack(
        id="A38",
        promise="P11",
        name="small set",
        title="No committee opens a sum over fewer uploads than agreed",
        says="asks for the target and its own clients",
        stopped_by="each member's own minimum",
        refused_with="RemoteProtocolError SET_TOO_SMALL",
        see=("span.md#one-shot-rounds",),
        run=twins(partial(play, _too_few, _SETTING), 10, 200, member=no_minimum),
    ),
)
