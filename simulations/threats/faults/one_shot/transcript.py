"""What a hostile server got out of the members of one round, and what that breaks.

Only what honest members sent is counted. A promise is broken if one of them signed two sets or
answered twice, if two of them answered on different sets, if one answered without a quorum on its
own set, on a set that is too small or that has an upload in an honest client's name which that
client did not make, or gave up other shares of seeds than those that are surplus.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from secagg import ProtocolError
from secagg.framing import Message, decode_set, split_items
from secagg.keys import SIGNATURE_BYTES, signature_is_valid
from secagg.oneshot.header import Header, survivors_digest
from secagg.oneshot.layout import encode_rows
from secagg.oneshot.member import OneShotMember
from secagg.oneshot.messages import Answer, Confirmation, Proposal, Quorum, Upload
from secagg.oneshot.states import Checked, Confirmed
from secagg.tags import Usage
from simulations.threats.one_shot.parties import OneShotVictims

Headers = tuple[Header, ...]


@dataclass(frozen=True, slots=True)
class Given:
    """An answer of an honest member."""

    headers: Headers
    signers: int
    seeds_due: bool


class Transcript:
    """Signatures and answers of honest members."""

    def __init__(self, victims: OneShotVictims) -> None:
        self.own: dict[int, Header] = {}
        self._context = victims.context
        self._honest = set(range(victims.context.size)) - set(victims.setting.own_clients)
        self._signed: defaultdict[int, set[Headers]] = defaultdict(set)
        self._given: defaultdict[int, list[Given]] = defaultdict(list)

    @property
    def released(self) -> int:
        """Honest members that answered."""
        return len(self._given)

    def uploaded(self, uploads: Mapping[int, Upload]) -> None:
        """These are the uploads that clients really made."""
        self.own = {u: Header.of(uploads[u]) for u in self._honest}

    def signed(self, member: int, before: Checked, chosen: tuple[int, ...]) -> None:
        """A member signed a set."""
        self._signed[member].add(_headers(before, chosen))

    def answered(
        self, member: int, headers: Headers, state: Confirmed, shown: Quorum, given: Answer
    ) -> None:
        """A member answered what it was shown."""
        context = self._context
        committee, layout = context.committee, context.layout
        signers = decode_set(shown.signers, committee.size)
        signatures = split_items(shown.signatures, SIGNATURE_BYTES, len(signers))
        digest = survivors_digest(context, headers)
        convincing = sum(
            signature_is_valid(committee.members[j].identity, each, Usage.SURVIVORS, digest)
            for j, each in zip(signers, signatures, strict=True)
        )
        surplus = context.removed_seeds(len(headers))
        due = encode_rows(state.shares[:, layout.seed_columns(surplus)])
        self._given[member].append(Given(headers, convincing, given.seeds == due))

    def broken(self) -> str | None:
        """Every promise that is broken, if one is."""
        checks = (self._two_signed, self._two_answered, self._bad_answer)
        return "; ".join(problem for check in checks if (problem := check())) or None

    # -- promises -----------------------------------------------------------------------------

    def _two_signed(self) -> str | None:
        for member, sets in self._signed.items():
            if len(sets) > 1:
                return f"member {member} signed {len(sets)} sets"
        return None

    def _two_answered(self) -> str | None:
        sets = {given.headers for every in self._given.values() for given in every}
        if len(sets) > 1:
            return f"honest members answered on {len(sets)} sets"
        return None

    def _bad_answer(self) -> str | None:
        for member, every in self._given.items():
            if len(every) > 1:
                return f"member {member} answered twice"
            problem = self._objection(every[0])
            if problem:
                return f"member {member} answered although {problem}"
        return None

    def _objection(self, given: Given) -> str | None:
        """Why an honest member must not have answered like this."""
        context = self._context
        if len(given.headers) < context.minimum_survivors:
            return f"there were fewer than {context.minimum_survivors} uploads"
        if given.signers < context.committee.quorum:
            return "no quorum had signed its set"
        if not given.seeds_due:
            return "other seeds were surplus"
        for header in given.headers:
            if header.sender in self._honest and header != self.own[header.sender]:
                return f"the upload in the name of client {header.sender} was not its own"
        if len({header.ephemeral_key for header in given.headers}) < len(given.headers):
            return "one upload counted twice"
        return None


class WatchedVictims(OneShotVictims):
    """Honest parties; what their members give away is noted."""

    def __init__(self, *settings: Any, refused: Any, **makers: Any) -> None:
        super().__init__(*settings, **makers)
        self.transcript = Transcript(self)
        self._refused = refused
        self._sets: dict[tuple[int, tuple[int, ...]], Headers] = {}

    def refused(self, error: Exception) -> None:
        """Count a refusal where the campaign counts them."""
        self._refused(error)

    def ask(self, session: OneShotMember, message: Message) -> Message | None:
        """A member's answer; None if it refuses."""
        member, before = session._party.index, session._state
        try:
            answer = session.receive(message)
        except ProtocolError as error:
            self.refused(error)
            return None
        if isinstance(answer, Confirmation) and isinstance(message, Proposal):
            assert isinstance(before, Checked)  # noqa: S101 - only then it signs
            chosen = decode_set(message.survivors, self.context.size)
            self._sets[member, chosen] = _headers(before, chosen)
            self.transcript.signed(member, before, chosen)
        if isinstance(answer, Answer) and isinstance(message, Quorum):
            assert isinstance(before, Confirmed)  # noqa: S101 - only then it answers
            headers = self._sets[member, before.survivors]
            self.transcript.answered(member, headers, before, message, answer)
        return answer


def _headers(state: Checked, chosen: tuple[int, ...]) -> Headers:
    return tuple(header for header in state.headers if header.sender in chosen)
