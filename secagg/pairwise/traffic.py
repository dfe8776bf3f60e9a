"""The bytes of every message of a client in a pairwise round."""

from __future__ import annotations

from secagg.keys import KEY_BYTES, NONCE_BYTES, SIGNATURE_BYTES
from secagg.merkle import HASH_BYTES, largest_proof_bytes
from secagg.pairwise.context import Mode
from secagg.pairwise.messages import ADVERTISEMENT_ENTRY_BYTES
from secagg.sealing import SEAL_OVERHEAD_BYTES
from secagg.shamir import SHARE_BYTES
from secagg.traffic import Traffic, message_bytes


def client_traffic(
    clients: int, peers: int, quorum: int, mode: Mode, vector: int, seeds: int, given_up: int
) -> Traffic:
    """What a client sends and is sent if nobody is lost.

    Args:
        peers: whom it shares with, without itself.
        quorum: signatures that convince it.
        vector: bytes of the packed vector.
        seeds: removable ones of each client.
        given_up: how many of them survivors give up.
    """
    last, bitmap = clients - 1, (clients + 7) // 8
    sealed = peers * ((2 + seeds) * SHARE_BYTES + SEAL_OVERHEAD_BYTES)
    up = {
        "vector": message_bytes(vector, SIGNATURE_BYTES, sender=last),
        "roster": message_bytes(KEY_BYTES, KEY_BYTES, NONCE_BYTES, SIGNATURE_BYTES, sender=last),
        "shares": message_bytes((1 + seeds) * HASH_BYTES, sealed, SIGNATURE_BYTES, sender=last),
        "unmasking": message_bytes(
            SHARE_BYTES * (peers + 1), given_up * KEY_BYTES, SIGNATURE_BYTES, sender=last
        ),
    }
    entries = peers * ADVERTISEMENT_ENTRY_BYTES
    down = {
        "roster": message_bytes(bitmap, HASH_BYTES, largest_proof_bytes(clients), entries),
        "shares": message_bytes(bitmap, sealed),
        "unmasking": message_bytes(bitmap),
    }
    if mode is Mode.ACTIVE:
        up["confirmations"] = message_bytes(SIGNATURE_BYTES, sender=last)
        down["confirmations"] = message_bytes(bitmap, quorum * SIGNATURE_BYTES)
    return Traffic(up, down)
