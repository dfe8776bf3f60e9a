"""Whether a request comes from an announcer of this client's policy, if that names any."""

from __future__ import annotations

from dataclasses import replace

from protocol.adapters.evaluation import bound_digest
from protocol.adapters.flower.home import ClientHome
from protocol.adapters.flower.record import (
    ANNOUNCED,
    CHALLENGE_BYTES,
    MEMBER_ANNOUNCED,
    Request,
    Step,
)
from protocol.authority.registry import Role
from protocol.authority.site import About
from protocol.exchange.remote_one_shot import split_announcement
from protocol.exchange.sealing_book import read_request
from protocol.round.announcements import read_announcement
from protocol.round.setup import RoundSetup
from protocol.round.turns import Question
from protocol.statistics.survey import Survey
from secagg import SessionContext
from secagg.oneshot.context import CommitteeContext


def admitted(
    home: ClientHome, request: Request, run_id: int, app: bytes | None, survey: Survey | None
) -> ClientHome:
    """The folder as it is for this request: with an admission, where one is needed and due.

    The first step of a round has one, and whoever is asked for a sealing key or for its turn. Later
    steps go on with a stored round, which was admitted when it began.
    """
    if home.rules.authority is None:
        return home
    home = replace(home)  # whatever process this is, policy and registry are those of now
    asked = request.step is Step.HELLO and request.payload[CHALLENGE_BYTES:]
    if home.authority is None or not (asked or request.step in ANNOUNCED | {Step.TURN}):
        return home
    # First: it costs little, and whoever cannot show it makes us compute nothing else.
    envelope = home.authority.envelope(request.signed)
    return home.admitting(envelope, str(run_id), app, _about(home, request, survey))


def _about(home: ClientHome, request: Request, survey: Survey | None) -> About:
    """What an announcer signs of a request."""
    if request.step is Step.HELLO:
        asked = request.payload[CHALLENGE_BYTES:]
        return About(read_request(asked)[0], asked, None)
    if request.step is Step.TURN:
        return About(Question.read(request.payload).session_id, request.payload, None)
    kind = home.rules.committee.kind if home.rules.committee else "everyone"
    # Members are drawn from the clients, and named ones need be none.
    is_member = kind == "named" and request.step in MEMBER_ANNOUNCED
    role: Role = "member" if is_member else "client"
    terms = terms_of(request, survey)
    is_blind = kind != "everyone" and request.step is Step.UPLOAD
    return About(terms.session_id, terms.hash, role, is_blind)


def terms_of(request: Request, survey: Survey | None) -> SessionContext | CommitteeContext:
    """Of the round that begins; the digest is what this client was told, or found itself."""
    data = request.payload
    if request.step is Step.ADVERTISE:
        digest = bound_digest(request.digest, survey)
        return RoundSetup.from_announcement(data, digest).context
    if request.step in MEMBER_ANNOUNCED:
        data = split_announcement(data)[0]
    return read_announcement(data).member_context()
