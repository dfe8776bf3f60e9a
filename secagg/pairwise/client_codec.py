"""How the states of a client of the pairwise protocol are stored: see `secagg.storage`."""

from __future__ import annotations

from typing import Any

from secagg.keys import AgreedSecret, AgreementKey, SecretSeed
from secagg.pairwise import client_states as states
from secagg.pairwise.context import SessionContext
from secagg.pairwise.graph import build_graph
from secagg.pairwise.messages import Advertisement, context_tag
from secagg.pairwise.roster import Committee, RoundRoster
from secagg.state_codec import StateCodec


def _roster_to_plain(roster: RoundRoster) -> list[Any]:
    entries = {index: each.entry() for index, each in roster.advertisements.items()}
    return [roster.members, entries, roster.hash]


def _roster_from_plain(plain: list[Any], context: SessionContext) -> RoundRoster:
    members, entries, round_hash = tuple(plain[0]), plain[1], plain[2]
    return RoundRoster(
        members=members,
        advertisements={
            index: Advertisement.from_entry(context_tag(context), index, entry)
            for index, entry in entries.items()
        },
        graph=build_graph(members, context.degree, round_hash),
        committee=Committee.draw(context, members, round_hash),
        threshold=context.threshold,
        hash=round_hash,
    )


CLIENT_CODEC: StateCodec = StateCodec(
    states=(
        states.Fresh,
        states.Advertised,
        states.Shared,
        states.Ready,
        states.Masked,
        states.Confirmed,
        states.Released,
    ),
    fields={
        "sealing": (AgreementKey.expose, lambda raw, _: AgreementKey(raw)),
        "masking": (AgreementKey.expose, lambda raw, _: AgreementKey(raw)),
        "agreed": (
            lambda agreed: {u: secret.expose() for u, secret in agreed.items()},
            lambda raw, _: {u: AgreedSecret(secret) for u, secret in raw.items()},
        ),
        "seed": (SecretSeed.expose, lambda raw, _: SecretSeed(raw)),
        "removable": (
            lambda seeds: [seed.expose() for seed in seeds],
            lambda raw, _: tuple(SecretSeed(each) for each in raw),
        ),
        "advertisement": (
            lambda each: [each.sender, each.entry()],
            lambda raw, context: Advertisement.from_entry(context_tag(context), *raw),
        ),
        "roster": (_roster_to_plain, _roster_from_plain),
        "own_share": (bytes, lambda raw, _: raw),
        "participants": (list, lambda raw, _: tuple(raw)),
        "survivors": (list, lambda raw, _: tuple(raw)),
        "held": (dict, lambda raw, _: raw),
        "masked": (
            lambda masked: CLIENT_CODEC.to_plain(masked),
            lambda raw, context: CLIENT_CODEC.from_plain(states.Masked, raw, context),
        ),
    },
)
"""One encoder and decoder for each field of any state, by the field's name."""
