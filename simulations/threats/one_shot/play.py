"""Rounds of an attack on the one-shot protocol: servers that tell members different things."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from secagg.oneshot.client import OneShotClient
from secagg.oneshot.context import OneShotContext
from secagg.oneshot.header import Header, survivors_digest
from secagg.oneshot.member import OneShotMember
from secagg.oneshot.messages import Answer, Upload
from secagg.oneshot.opening import OpenedSum
from secagg.oneshot.server import OneShotServer
from secagg.tags import Usage
from simulations.audits.base import Figures
from simulations.threats.game.contexts import Integers
from simulations.threats.game.rates import rate
from simulations.threats.game.victims import refused_with
from simulations.threats.one_shot.opened import added, key_sum, vector_sum
from simulations.threats.one_shot.parties import (
    ClientMaker,
    MemberMaker,
    OneShotSetting,
    OneShotVictims,
    answer,
    held,
    member_identity,
    shown,
    signed,
    small_inputs,
)

Trial = Callable[[OneShotVictims, Integers, np.random.Generator], bool]
"""One round: whether the attack on these victims, with these inputs, succeeded."""


def play(
    trial: Trial,
    setting: OneShotSetting,
    trials: int,
    seed: int,
    client: ClientMaker = OneShotClient,
    member: MemberMaker = OneShotMember,
    change: Callable[[OneShotContext], OneShotContext] | None = None,
) -> Figures:
    """Many rounds.

    Args:
        change: what becomes of the context that all victims have.

    Returns:
        The rate, and the refusal that was met most often, if there was one.
    """
    won = 0
    refusals: Counter[str] = Counter()
    for number in range(trials):
        rng = np.random.default_rng([seed, number])
        context = setting.context(number)
        inputs = small_inputs(rng, context)
        victims = OneShotVictims(
            setting, change(context) if change else context, rng.bytes(8), client, member
        )
        won += trial(victims, inputs, rng)
        refusals += victims.refusals
    return {**rate(won, trials), **(refused_with(refusals) if refusals else {})}


@dataclass(slots=True)
class Split:
    """A server that shows and proposes to each honest member what it likes.

    Its corrupt members sign everything and give up what they hold.

    Attributes:
        victims: the parties.
        uploads: by member, what it is shown.
        sets: by member, what it is asked to sign.
        pooled: whether a signature is shown to everybody, on whatever set it is; otherwise to those
            members alone that were asked to sign the same uploads.
        forged: whether signatures on other sets fill up a quorum.
        sessions: by member, its session; fresh ones unless they are given.
    """

    victims: OneShotVictims
    uploads: Mapping[int, Mapping[int, Upload]]
    sets: Mapping[int, Collection[int]]
    pooled: bool = False
    forged: bool = False
    sessions: dict[int, OneShotMember] = field(default_factory=dict)

    def run(self) -> list[tuple[tuple[Upload, ...], Integers]]:
        """The sums that open: the uploads, and the sum of their vectors."""
        shares = self.shares()
        return [
            (uploads, total)
            for uploads, of_members in shares.items()
            if (total := self._opened(uploads, of_members)) is not None
        ]

    def shares(self) -> dict[tuple[Upload, ...], dict[int, NDArray[np.uint32]]]:
        """By set of uploads, the honest members' shares of the sum of its keys."""
        context, by_set = self.victims.context, {}
        signatures: dict[int, bytes] = {}
        for j, survivors in self.sets.items():
            if j not in self.sessions:
                self.sessions[j] = self.victims.member(j)
                if shown(self.victims, self.sessions[j], j, self.uploads[j]) is None:
                    continue
            signature = signed(self.victims, self.sessions[j], survivors)
            if signature is not None:
                signatures[j] = signature
        for j in signatures:
            chosen = self._chosen(j)
            own = {k: signatures[k] for k in signatures if self.pooled or self._chosen(k) == chosen}
            if not self.pooled:
                own |= self._corrupt(context, chosen)
            if self.forged:
                own = {**signatures, **own}
            given = answer(self.victims, self.sessions[j], own)
            if given is not None:
                by_set.setdefault(chosen, {})[j] = given
        return by_set

    def _chosen(self, j: int) -> tuple[Upload, ...]:
        return tuple(self.uploads[j][u] for u in sorted(self.sets[j]))

    def _corrupt(self, context: OneShotContext, chosen: tuple[Upload, ...]) -> dict[int, bytes]:
        digest = survivors_digest(context, [Header.of(upload) for upload in chosen])
        return {
            j: member_identity(j).sign(Usage.SURVIVORS, digest)
            for j in self.victims.setting.own_members
            if j not in self.sets
        }

    def _opened(
        self, uploads: tuple[Upload, ...], of_members: Mapping[int, NDArray[np.uint32]]
    ) -> Integers | None:
        context = self.victims.context
        shares = dict(of_members)
        for j in self.victims.setting.own_members:
            if j not in self.sets:
                shares[j] = added(context, [held(context, upload, j) for upload in uploads])
        return vector_sum(context, uploads, key_sum(context, shares))


def honest_round(
    victims: OneShotVictims,
    uploads: Mapping[int, Upload],
    change: Callable[[int, Answer, bytes], Answer] | None = None,
) -> OpenedSum:
    """A round with a server of the product.

    Args:
        change: what a member answers instead, given its number, its answer and the signed digest.

    Raises:
        ProtocolError: the round is lost.
    """
    server = OneShotServer(victims.context, victims.cohort)
    sessions = {j: victims.member(j) for j in range(victims.context.committee.size)}
    for u in sorted(uploads):
        server.receive(uploads[u])
    for _ in range(3):
        for j, message in list(server.close_round()):
            given = sessions[j].receive(message)
            if isinstance(given, Answer) and change is not None:
                headers = [Header.of(uploads[u]) for u in server.survivors]
                given = change(j, given, survivors_digest(victims.context, headers))
            server.receive(given)
    opened = server.open()
    assert isinstance(opened, OpenedSum)  # noqa: S101 - what a one-shot server opens
    return opened
