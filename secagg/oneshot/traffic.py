"""The bytes of every message of a client and of a member in a one-shot round."""

from __future__ import annotations

from secagg.keys import KEY_BYTES, SIGNATURE_BYTES
from secagg.merkle import HASH_BYTES
from secagg.oneshot.layout import CHALLENGES, ShareLayout
from secagg.oneshot.messages import HEADER_BYTES
from secagg.sealing import SEAL_OVERHEAD_BYTES
from secagg.traffic import Traffic, message_bytes


def client_traffic(layout: ShareLayout, vector: int) -> Traffic:
    """What a client that is no member sends: its upload, with a ciphertext of so many bytes."""
    seals = layout.members * _sealed(layout)
    seeds = layout.seeds * HASH_BYTES
    whole = message_bytes(
        KEY_BYTES, vector, seeds, seals, SIGNATURE_BYTES, sender=layout.clients - 1, flags=1
    )
    rest = whole - vector - seals - seeds
    return Traffic({"vector": vector, "seals": seals, "seeds": seeds, "header": rest}, {})


def member_traffic(layout: ShareLayout, quorum: int, given_up: int, uploads: int) -> Traffic:
    """What a member of the committee sends and is sent as such.

    Args:
        quorum: signatures that convince it.
        given_up: surplus seeds that are opened of each upload.
        uploads: how many there are.
    """
    clients, last, bitmap = layout.clients, layout.members - 1, (layout.clients + 7) // 8
    shares = uploads * _sealed(layout)
    sums, checks = 4 * layout.key_polynomials, 4 * uploads * CHALLENGES
    seeds = 4 * uploads * given_up * layout.seed_polynomials
    up = {
        "checking": message_bytes(bitmap, SIGNATURE_BYTES, sender=last),
        "confirmations": message_bytes(SIGNATURE_BYTES, sender=last),
        "opening": message_bytes(sums, seeds, checks, SIGNATURE_BYTES, sender=last),
    }
    down = {
        "checking": message_bytes(clients * KEY_BYTES, bitmap, uploads * HEADER_BYTES, shares),
        "confirmations": message_bytes(bitmap),
        "opening": message_bytes((layout.members + 7) // 8, quorum * SIGNATURE_BYTES),
    }
    return Traffic(up, down)


def _sealed(layout: ShareLayout) -> int:
    return layout.share_bytes + SEAL_OVERHEAD_BYTES
