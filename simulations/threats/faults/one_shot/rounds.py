"""One-shot rounds with an honest server: all parties, two wires; and the checks after it.

Whatever happens, a round must end in the exact sum over the survivors it names, or in a typed
error. The exact sum is that of the honest survivors' inputs and of what the liars among them
uploaded. Seeds that are given up must be the ones that their owners committed to. Who is named, or
left out for a complaint, must be what docs/one-shot-security.md allows for: an honest member is
named only if a dealer in the sum dealt shares on no polynomial, an honest client never, as long as
there are no more liars on the committee than it stands.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, ClassVar

from secagg import FieldSum, ProtocolError, RemoteProtocolError
from secagg.errors import OpeningFailedError
from secagg.oneshot.context import Cohort, OneShotContext
from secagg.oneshot.header import seed_commitment
from secagg.oneshot.messages import Answer, Complaints, Upload
from secagg.oneshot.opening import OpenedSum
from secagg.oneshot.server import OneShotServer
from secagg.oneshot.transitions import ServerPhase
from simulations.threats.faults.behaviours import Sent, Tally, Verdict, Wire, wrong_sum
from simulations.threats.faults.one_shot.liars import LyingClient, LyingMember
from simulations.threats.faults.one_shot.parties import HonestClient, HonestMember
from simulations.threats.game.contexts import Integers, cohort_keys


@dataclass(frozen=True, slots=True)
class Wires:
    """One for each direction, so that what comes late comes to whom it was meant for."""

    up: Wire
    down: Wire


class Round:
    """An honest server, clients, a committee, and the wires between them."""

    SERVER: ClassVar[type[OneShotServer]] = OneShotServer
    UPLOAD: ClassVar[type] = Upload
    COMPLAINTS: ClassVar[type] = Complaints

    def __init__(
        self,
        context: OneShotContext,
        clients: Mapping[int, HonestClient | LyingClient],
        members: Mapping[int, HonestMember],
        inputs: MutableMapping[int, Integers],
        wires: Wires,
        tally: Tally,
    ) -> None:
        self.context = context
        self.total: OpenedSum | None = None
        self.liars = {u: each for u, each in clients.items() if isinstance(each, LyingClient)}
        self.lying_members = {j for j, each in members.items() if isinstance(each, LyingMember)}
        self._clients = clients
        self._members = members
        self._inputs = inputs
        self._wires = wires
        self._tally = tally
        self._server = self.SERVER(context, Cohort(cohort_keys(context.size)))
        self._accepted: dict[type, dict[int, Any]] = {}
        self._proposed: set[int] = set()

    def run(self) -> FieldSum:
        """All stages; raises what ends the round."""
        heard: dict[int, Upload] = {}
        # Liars hear what the others say first.
        order = sorted(self._clients, key=lambda u: (u in self.liars, u))
        upward = [sent for u in order for sent in self._clients[u].open(heard)]
        self._carry_up(upward)
        for j, member in self._members.items():
            client = self._clients.get(j)
            member.seat(client.header_digest if client is not None else None)
        while self._server.phase is not ServerPhase.OPENING:
            sent = list(self._server.close_round_bytes())
            if self._server.phase is ServerPhase.CONFIRMING:
                self._proposed = {member for member, _ in sent}
            size = self.context.size
            downward = self._wires.down.carry([(size + j, data) for j, data in sent])
            self._carry_up([sent for to, data in downward for sent in self._to_member(to, data)])
        return self._server.open()

    def verdict(self) -> Verdict:
        """Run, and check what came of it."""
        try:
            total = self.run()
        except ProtocolError as error:
            return Verdict(type(error).__name__, self._wrong_leads(error) or self._left_out())
        assert isinstance(total, OpenedSum)  # noqa: S101 - what a one-shot server opens
        self.total = total
        checks = (self._wrong_sum, self._wrong_seeds, self._framed)
        problem = next((found for check in checks if (found := check(total))), self._left_out())
        return Verdict("wrong result" if problem else "exact sum", problem)

    # -- the wire -----------------------------------------------------------------------------

    def _carry_up(self, sent: Sent) -> None:
        for sender, data in self._wires.up.carry(sent):
            self._to_server(sender, data)

    def _to_server(self, sender: int, data: bytes) -> None:
        member = sender - self.context.size
        message: Any
        try:
            if member < 0:
                self._server.receive_upload(sender, data)
                message = self._server._decode_upload(data, sender)
            else:
                self._server.receive_from_member(member, data)
                message = self._server._decode_from_member(data, member)
        except RemoteProtocolError as error:
            self._tally.refused(error)
            return
        self._accepted.setdefault(type(message), {})[message.sender] = message
        if isinstance(message, self.UPLOAD) and sender in self.liars:
            meant = self.liars[sender].uploaded(data)
            if meant is not None:
                self._inputs[sender] = meant

    def _to_member(self, number: int, data: bytes) -> Sent:
        try:
            return self._members[number - self.context.size].receive(data)
        except ProtocolError as error:
            self._tally.refused(error)
            return []

    # -- checks -------------------------------------------------------------------------------

    def _wrong_sum(self, total: OpenedSum) -> str | None:
        if total.survivors != self._server.survivors:
            return f"the sum is over others than the announced {self._server.survivors}"
        return wrong_sum(total, self._inputs, self.context.minimum_survivors)

    def _wrong_seeds(self, total: OpenedSum) -> str | None:
        which = self.context.removed_seeds(len(total.survivors))
        noisy = set(total.noisy)
        expected = set(total.survivors) - noisy if which else set()
        if set(total.removed) != expected:
            return f"seeds of {sorted(total.removed)} instead of {sorted(expected)}"
        for u, seeds in total.removed.items():
            made = [
                seed_commitment(self.context, u, i, seed)
                for i, seed in zip(which, seeds, strict=True)
            ]
            if made != [self._commitments(u)[i] for i in which]:
                return f"the seeds of client {u} are not the ones it committed to"
            own = self._clients[u]
            if isinstance(own, HonestClient) and seeds != tuple(own.seeds[i] for i in which):
                return f"the seeds of client {u} are not its own"
        answered = self._accepted[Answer].keys()
        room = (len(answered) - self.context.committee.threshold) // 2
        honest = noisy - self.liars.keys()
        if honest and len(answered & self.lying_members) <= room:
            return f"the noise of honest clients {sorted(honest)} stays on the sum"
        return None

    def _commitments(self, u: int) -> list[bytes]:
        joined = self._accepted[Upload][u].commitments
        return [joined[i : i + 32] for i in range(0, len(joined), 32)]

    def _framed(self, total: OpenedSum) -> str | None:
        """Members may look wrong if a dealer in the sum was."""
        honest = set(total.wrong_members) - self.lying_members
        if honest and not self._dealt_badly(total.survivors):
            return f"honest members {sorted(honest)} are named as wrong"
        return None

    def _wrong_leads(self, error: ProtocolError) -> str | None:
        """What a lost round says, unless there are more liars than the committee stands."""
        if not isinstance(error, OpeningFailedError):
            return None
        if len(self.lying_members) > self.context.committee.corrupt:
            return None
        dealers = set(error.dealers) - self.liars.keys()
        if dealers:
            return f"honest clients {sorted(dealers)} are named as dealers"
        members = set(error.members) - self.lying_members
        if members and not self._dealt_badly(self._server.survivors):
            return f"honest members {sorted(members)} are named as liars"
        return None

    def _dealt_badly(self, survivors: tuple[int, ...]) -> bool:
        return any(self.liars[u].dealt_badly for u in survivors if u in self.liars)

    def _left_out(self) -> str | None:
        """Complaints cost few honest parties, if there are no more liars than are tolerated.

        A hostile wire damages seals as well, and is not told apart.
        """
        context, committee = self.context, self.context.committee
        if absent := set(self._server.excluded) - self._accepted.get(self.UPLOAD, {}).keys():
            return f"complaints left out clients {sorted(absent)}, which sent nothing"
        complained = self._accepted.get(self.COMPLAINTS, {})
        few = len(self.liars) <= context.tolerated_colluders
        few = few and len(self.lying_members) <= committee.corrupt
        if not few or self._wires.down.rate or self._server.phase is ServerPhase.COLLECTING:
            return None
        weight = max(-(-context.tolerated_colluders // max(committee.corrupt, 1)), 1)
        clients = set(self._server.excluded) - self.liars.keys()
        if len(clients) > weight * len(self.lying_members):
            return f"complaints left out honest clients {sorted(clients)}"
        members = complained.keys() - self._proposed - self.lying_members
        if self._proposed and len(members) * weight > len(self.liars):
            return f"complaints left out honest members {sorted(members)}"
        return None
