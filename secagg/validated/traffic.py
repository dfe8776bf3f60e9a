"""The bytes of every message of a client and of a member in a validated round."""

from __future__ import annotations

from secagg.keys import KEY_BYTES, SIGNATURE_BYTES
from secagg.traffic import Traffic, message_bytes
from secagg.validated.messages import (
    HEADER_BYTES,
    delivered_bytes,
    functional_words,
    packed_bytes,
    part_bytes,
    part_words,
)
from secagg.validated.parameters import Parameters


def vector_bytes(p: Parameters) -> int:
    """Bytes of a ciphertext."""
    return packed_bytes(p.ring, p.blocks * p.ring.degree)


def client_traffic(p: Parameters, clients: int) -> Traffic:
    """What a client that is no member sends: its upload."""
    vector, functional = vector_bytes(p), packed_bytes(p.ring, functional_words(p))
    seals = [p.members * each for each in part_bytes(p)]
    sizes = KEY_BYTES, vector, *seals, functional, SIGNATURE_BYTES
    whole = message_bytes(*sizes, sender=clients - 1, flags=1)
    header = whole - vector - sum(seals) - functional
    up = {"vector": vector, "seals": sum(seals), "functional": functional, "header": header}
    return Traffic(up, {})


def member_traffic(p: Parameters, clients: int, quorum: int, uploads: int) -> Traffic:
    """What a member sends and is sent as such, at most: paths in a tree differ by a few hashes.

    Args:
        quorum: signatures that convince it.
        uploads: how many there are.
    """
    last, bitmap = p.members - 1, (clients + 7) // 8
    answers = uploads * packed_bytes(p.ring, 3 * p.repetitions)
    sums = packed_bytes(p.ring, part_words(p)[0])
    delivered = uploads * delivered_bytes(p, 0)
    up = {
        "checking": message_bytes(bitmap, answers, SIGNATURE_BYTES, sender=last),
        "confirmations": message_bytes(SIGNATURE_BYTES, sender=last),
        "opening": message_bytes(sums, 0, 0, SIGNATURE_BYTES, sender=last),
    }
    down = {
        "checking": message_bytes(clients * KEY_BYTES, bitmap, uploads * HEADER_BYTES, delivered),
        "confirmations": message_bytes(bitmap),
        "opening": message_bytes((p.members + 7) // 8, quorum * SIGNATURE_BYTES),
    }
    return Traffic(up, down)
