"""Whether the modelled member decides as the real one: every set at every stage.

A real `OneShotMember` is taken to each stage and shown every set there. Its states are frozen
values, so one stage is entered again for each choice. Uploads come from real clients; a bad one has
a header of another context, or a seal for another member.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product

import msgspec
import numpy as np
from span_conformance import Conformance

from secagg.framing import decode_set
from secagg.keys import KEY_BYTES
from secagg.oneshot.context import OneShotContext
from secagg.oneshot.header import Header, survivors_digest
from secagg.oneshot.layout import decode_rows, encode_rows
from secagg.oneshot.member import OneShotMember
from secagg.oneshot.messages import Answer, AnyMessage, Complaints, Confirmation, Upload, seal_bytes
from secagg.oneshot.states import Checked, Confirmed, Finished, MemberState
from secagg.oneshot.transitions import MemberPhase
from secagg.tags import Usage
from simulations.threats.one_shot.parties import (
    OneShotSetting,
    OneShotVictims,
    committee_of,
    delivery,
    held,
    member_identity,
    proposal,
    quorum,
)
from simulations.threats.span.clients import members, subsets
from simulations.threats.span.one_shot import OneShotParameters, OneShotRules

_MEMBER = 0
_LENGTH = 2


def context_of(p: OneShotParameters) -> OneShotContext:
    """The product's context with these numbers; ParameterError if it refuses them."""
    committee = committee_of(
        p.members,
        p.corrupt,
        randomness=p.randomness,
        per_polynomial=p.secrets,
        quorum=p.quorum,
    )
    setting = OneShotSetting(clients=p.clients, colluders=0, length=_LENGTH)
    return setting.context(
        0,
        committee=committee,
        minimum_survivors=p.minimum,
        tolerated_colluders=p.colluders,
        entries=3,
    )


def conformance(p: OneShotParameters, rules: OneShotRules | None = None) -> Conformance:
    """Compare a modelled member with a real one on all sets of all stages."""
    walk = _Walk(p, OneShotRules() if rules is None else rules)
    walk.deliveries()
    return walk.result


class _Walk:
    """One member's decisions, stage after stage."""

    def __init__(self, p: OneShotParameters, rules: OneShotRules) -> None:
        self.p, self.rules = p, rules
        self.context = context_of(p)
        self.result = Conformance()
        self.everybody = (1 << p.clients) - 1
        setting = OneShotSetting(clients=p.clients, members=p.members)
        victims = OneShotVictims(setting, self.context, b"conformance")
        other = replace(self.context, application_digest=b"\1" * KEY_BYTES)
        vector = np.ones(_LENGTH, np.int64)
        self.uploads = {u: victims.upload(u, vector) for u in range(p.clients)}
        elsewhere = {u: victims.upload(u, vector, other) for u in range(p.clients)}
        size = seal_bytes(self.context)
        misdirected = {
            u: msgspec.structs.replace(x, seals=x.seals[-size:] + x.seals[size:])
            for u, x in self.uploads.items()
        }
        self.spoilt = (elsewhere, misdirected)
        self.start = victims.member(_MEMBER).hand_over()
        self.party = self.start[0]

    def deliveries(self) -> None:
        for uploaded, bad in product(subsets(self.everybody), (None, *range(self.p.clients))):
            if bad is not None and not uploaded >> bad & 1:
                continue
            for spoilt in self.spoilt if bad is not None else self.spoilt[:1]:
                shown = {u: spoilt[u] if u == bad else self.uploads[u] for u in members(uploaded)}
                self._checked(uploaded, 0 if bad is None else 1 << bad, shown)

    def _checked(self, uploaded: int, bad: int, shown: Mapping[int, Upload]) -> None:
        after = self._accepted(self.start[1], delivery(self.context, _MEMBER, shown))
        assert after is not None
        state, complaints = after
        assert isinstance(state, Checked)
        assert isinstance(complaints, Complaints)
        kept = self.rules.checked(uploaded, bad)
        refused = sum(1 << u for u in decode_set(complaints.bad, self.p.clients))
        what = f"uploads {members(uploaded)}, of which {members(bad)} are bad"
        self.result.compare(f"{what}: complains", uploaded & ~kept, refused)
        for survivors in subsets(self.everybody):
            after = self._accepted(state, proposal(self.context, members(survivors)))
            model = self.rules.accepts_proposal(self.p, kept, survivors)
            text = f"{what}, set {members(survivors)}"
            self.result.compare(text, model, after is not None)
            if after is not None and not bad:
                confirmed, confirmation = after
                assert isinstance(confirmed, Confirmed)
                assert isinstance(confirmation, Confirmation)
                self._confirmed(text, survivors, confirmed, confirmation.signature)

    def _confirmed(self, what: str, survivors: int, state: Confirmed, signature: bytes) -> None:
        self._names_uploads(what, survivors, signature)
        self._another_set(what, state)
        another = survivors_digest(
            replace(self.context, application_digest=b"\1" * KEY_BYTES),
            [Header.of(self.uploads[u]) for u in members(survivors)],
        )
        for signers in subsets((1 << self.p.members) - 1):
            for liar in (None, *members(signers)):
                signatures = {
                    j: member_identity(j).sign(
                        Usage.SURVIVORS, another if j == liar else state.signed
                    )
                    for j in members(signers)
                }
                after = self._accepted(state, quorum(self.context, signatures))
                model = liar is None and self.rules.accepts_quorum(self.p, signers)
                text = f"{what}, signed by {members(signers)}, {liar} on something else"
                self.result.compare(text, model, after is not None)
                if after is not None and liar is None:
                    self._answered(text, survivors, *after)

    def _names_uploads(self, what: str, survivors: int, signature: bytes) -> None:
        """The signature is on these uploads, not on their senders: it is no other upload's."""
        headers = [Header.of(self.uploads[u]) for u in members(survivors)]
        own = member_identity(_MEMBER).sign(
            Usage.SURVIVORS, survivors_digest(self.context, headers)
        )
        headers[0] = replace(headers[0], ciphertext_hash=bytes(KEY_BYTES))
        other = survivors_digest(self.context, headers)
        named = own == signature != member_identity(_MEMBER).sign(Usage.SURVIVORS, other)
        self.result.compare(f"{what}: names uploads", self.rules.headers, named)

    def _another_set(self, what: str, state: MemberState) -> None:
        """Having signed one set, a member signs no other, whether it has answered or not."""
        for survivors in subsets(self.everybody):
            after = self._accepted(state, proposal(self.context, members(survivors)))
            again = self.rules.sets > 1 and survivors.bit_count() >= self.p.minimum
            text = f"{what}, then set {members(survivors)}"
            self.result.compare(text, again, after is not None)

    def _answered(self, what: str, survivors: int, state: MemberState, answer: AnyMessage) -> None:
        """The sums are those over the set, and nothing is answered afterwards."""
        assert isinstance(answer, Answer)
        context, layout = self.context, self.context.layout
        summed = members(self.rules.summed(survivors))
        shares = np.stack([held(context, self.uploads[u], _MEMBER) for u in summed])
        expected = encode_rows(layout.sum_keys(shares))
        self.result.compare(f"{what}: sums", expected, answer.sums)
        self.result.compare(f"{what}: seeds", b"", answer.seeds)
        checks = decode_rows(answer.checks, survivors.bit_count(), 4)
        self.result.compare(f"{what}: hidden checks", True, self._are_masked(checks, survivors))
        self.result.compare(f"{what}: is over", True, isinstance(state, Finished))

    def _are_masked(self, checks: np.ndarray, survivors: int) -> bool:
        """Whether each masked combination minus its mask is that of the signed digest."""
        layout = self.context.layout
        digest = survivors_digest(
            self.context, [Header.of(self.uploads[u]) for u in members(survivors)]
        )
        challenge = layout.challenge_of(digest).astype(object)
        for row, u in zip(checks, members(survivors), strict=True):
            share = held(self.context, self.uploads[u], _MEMBER).astype(object)
            plain = challenge @ share[: layout.key_polynomials]
            if ((plain + share[-4:] - row) % (2**31 - 1)).any():
                return False
        return True

    def _accepted(
        self, state: MemberState, message: AnyMessage
    ) -> tuple[MemberState, AnyMessage] | None:
        """The member's next state and answer; None if it refuses."""
        session = OneShotMember.from_state(self.party, state)
        return self.result.asked(session, message, MemberPhase.ABORTED, Finished())
