"""A node as a member of a committee: three short answers after the uploads are in.

Nothing of it needs the model or the data, and the training function is not called. What the member
has signed before is in a history of its own, in the client's folder.
"""

from __future__ import annotations

from flwr.app import Context

from protocol.adapters.flower.home import ClientHome
from protocol.adapters.flower.node_state import keep_stored, take_stored
from protocol.adapters.flower.record import Request, Step
from protocol.adapters.flower.waiting import Clock
from protocol.errors import PolicyError
from protocol.exchange.remote_one_shot import RemoteMember, round_of
from protocol.round.member import RoundMember

MEMBER_STEPS = frozenset({Step.CHECK, Step.SIGN, Step.OPEN})
"""What members of a committee are asked."""


def member_answer(home: ClientHome, request: Request, context: Context) -> bytes:
    """What to send back."""
    if home.rules.committee is None:
        raise PolicyError("protocol", "one-shot", "pairwise: no committee is trusted")
    begins = request.step is Step.CHECK
    stored = take_stored(context)
    with home.member_history() as history:
        if begins:
            # A round that was not finished never will be: a node is in one at a time.
            home.round_keys().clear()
            about = round_of(request.payload)
        else:
            about = RoundMember.round_of(stored)
        member = RoundMember(
            home.identity,
            home.sealing().key(home.identity, *about),
            home.rules.member_policy(home.registry),
            history,
            Clock().unix,
        )
        if not begins:
            member.resume(stored, home.round_keys())
        remote = RemoteMember(member, home.uploads().receipt() if begins else None)
        reply = remote.answer(request.payload)
        if not remote.is_over:
            keep_stored(context, member.suspend(home.round_keys()))
    return reply
