"""One whole validated round with real cryptography, some of its clients cheating."""

from __future__ import annotations

import os
import statistics
from functools import partial
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from secagg import Identity
from secagg.errors import SERVER
from secagg.field import centre, lift
from secagg.keys import AgreementKey
from secagg.oneshot.committee import Committee, CommitteeKind, Member, lowest_quorum
from secagg.oneshot.context import Cohort, fewest_survivors
from secagg.validated.bounds import announced_bound, least_bound
from secagg.validated.client import ValidatedClient
from secagg.validated.context import DEGREE, ValidatedContext, bits_of_sum, longest_of
from secagg.validated.member import ValidatedMember
from secagg.validated.messages import upload_bytes
from secagg.validated.parameters import holds_bound, ring_for, widest
from secagg.validated.ring import MAX_BITS, PrimeRing
from secagg.validated.server import ValidatedServer
from simulations.bench.timing import PartyClock, interleaved_seconds, peak_rss_bytes
from simulations.threats.one_shot.too_long import upload_of_any_length

MOST_UNITS = 1 << 12
"""Integer units of an honest vector's length without noise, at most: fewer where no ring holds the
bound."""
_ERRORS = 6.4
_LARGEST_RING = PrimeRing(DEGREE, MAX_BITS)
_CHEAT = -10
"""By which a cheat multiplies its vector."""


def bench_validated_round(
    clients: int, cheats: int, dim: int, members: int, corrupt: int, away: int
) -> dict[str, Any]:
    """Run one round with a named committee; what is left of it is checked against the plain sum.

    Clients add a share of Gaussian noise with noise multiplier 1 over all of them. Cheats send -10
    times such a vector, of which validation has to reject all and nobody else.

    `client_seconds_median`, `server_seconds_per_upload` and `validation_seconds_member` (of one
    upload) are each party's own work, with sealing, hashing and signatures. The limit beside them,
    `transforms_seconds`, is that of the transforms that the functional takes, alone:
    `ratio_to_transforms` is the server's time for an upload as a multiple. `round_seconds` is all
    work of all parties together.
    """
    # Whatever is compiled at first.
    if dim > DEGREE and not bench_validated_round(4, 1, DEGREE, 8, 1, 1)["correct"]:
        raise RuntimeError("the sum of the warm-up round is wrong")
    playing = _Round(clients, dim, members, corrupt, away)
    context, clock = playing.context, PartyClock()
    uploads = {
        index: clock.charge(index, partial(playing.upload, index, index < cheats))
        for index in range(clients)
    }
    server = clock.charge(SERVER, partial(ValidatedServer, context, playing.cohort))
    for index, data in uploads.items():
        clock.charge(SERVER, partial(server.receive_upload, index, data))
    received = clock.seconds[SERVER]
    down, checking = 0, 0.0
    for stage in range(3):
        for member, data in clock.charge(SERVER, server.close_round_bytes):
            down += len(data)
            session = playing.members[member]
            answer = clock.charge(clients + member, partial(session.receive_bytes, data))
            clock.charge(SERVER, partial(server.receive_from_member, member, answer))
        if stage == 0:
            checking = statistics.median(clock.seconds[clients + j] for j in range(members))
    opened = clock.charge(SERVER, server.open)
    honest = range(cheats, clients)
    error = centre(opened.vector) - sum(playing.vector(i) for i in honest)
    correct = (
        opened.survivors
        == tuple(honest)
        == tuple(index for index in range(clients) if index not in server.excluded)
    )
    # Errors of the lattice stay in the sum: six deviations of it.
    correct &= bool(np.abs(error).max() <= 6.5 * _ERRORS * sqrt(clients))
    p, ring = context.parameters, context.parameters.ring
    element = np.zeros((p.blocks, DEGREE), np.uint64)
    taken = interleaved_seconds({"transforms": lambda: ring.forward(element)}, 5)
    transforms = (p.repetitions + 1) * taken["transforms"]
    parts = upload_bytes(context)
    return {
        "clients": clients,
        "cheats": cheats,
        "dim": dim,
        "committee": members,
        "corrupt": corrupt,
        "away": away,
        "secrets_per_polynomial": p.per_polynomial,
        "ring_bits": ring.bits,
        "repetitions": p.repetitions,
        "bound": longest_of(context.bound),
        "clip_units": playing.units,
        "bound_over_clip": longest_of(context.bound) / playing.units,
        "client_seconds_median": statistics.median(clock.seconds[i] for i in honest),
        "server_seconds": clock.seconds[SERVER],
        "server_seconds_per_upload": received / clients,
        "validation_seconds_member": checking / clients,
        "transforms_seconds": transforms,
        "ratio_to_transforms": received / clients / transforms,
        "round_seconds": sum(clock.seconds.values()),
        "bytes_per_client": sum(parts.values()),
        "bytes_ciphertext": parts["ciphertext"],
        "bytes_seals": parts["seals"],
        "bytes_functional": parts["functional"],
        "member_bytes_down_per_upload": down / members / clients,
        "excluded": len(server.excluded),
        "peak_rss_bytes": peak_rss_bytes(),
        "correct": correct,
    }


class _Round:
    """The parties of one round."""

    def __init__(self, clients: int, dim: int, members: int, corrupt: int, away: int) -> None:
        session = os.urandom(16)
        self._identities = [Identity.generate() for _ in range(clients)]
        self.cohort = Cohort([each.public for each in self._identities])
        keys = [(Identity.generate(), AgreementKey(os.urandom(32))) for _ in range(members)]
        self.units = MOST_UNITS
        while not holds_bound(_LARGEST_RING, announced_bound(self.units, self._noise(dim))):
            self.units //= 2
        randomness = max(corrupt, 1)
        per_polynomial = widest(members, corrupt, away) - randomness
        committee = Committee(
            kind=CommitteeKind.NAMED,
            members=tuple(Member.sign(one, session, key.public, 0, 0) for one, key in keys),
            corrupt=corrupt,
            randomness=randomness,
            per_polynomial=per_polynomial,
            quorum=lowest_quorum(members, corrupt),
        )
        bound = announced_bound(self.units, self._noise(dim))
        self._least = least_bound(self.units, self._noise(dim))
        self.context = ValidatedContext(
            session_id=session,
            round_number=0,
            size=clients,
            cohort_root=self.cohort.root,
            minimum_survivors=fewest_survivors(clients, 0),
            tolerated_colluders=0,
            committee=committee,
            bits=bits_of_sum(longest_of(bound, clients)),
            length=dim,
            application_digest=bytes(32),
            away=away,
            ring_bits=ring_for(DEGREE, bound).bits,
            bound=bound,
        )
        self.members = [
            ValidatedMember(self.context, number, one, key)
            for number, (one, key) in enumerate(keys)
        ]

    @property
    def _deviation(self) -> float:
        """A client's share of the noise, in units."""
        return self.units / sqrt(len(self._identities))

    def _noise(self, dim: int) -> list[tuple[int, float]]:
        """The noise and errors of coordinates, and the errors of what fills the last block."""
        return [(dim, sqrt(self._deviation**2 + _ERRORS**2)), (-dim % DEGREE, _ERRORS)]

    def vector(self, client: int) -> NDArray[np.int64]:
        """A vector of the honest length in a random direction, and its noise."""
        random = np.random.default_rng(client)
        drawn = random.normal(size=self.context.length)
        noise = random.normal(0.0, self._deviation, drawn.size)
        return np.rint(drawn * self.units / np.linalg.norm(drawn) + noise).astype(np.int64)

    def upload(self, client: int, cheating: bool) -> bytes:
        """What a client sends."""
        identity, proof = self._identities[client], self.cohort.proof(client)
        if cheating:
            vector = _CHEAT * self.vector(client)
            return upload_of_any_length(self.context, client, identity, proof, vector)
        session = ValidatedClient(self.context, client, identity, proof, self._least)
        vector = self.vector(client)
        session.seeds(vector.tobytes())
        return session.submit_bytes(lift(vector, self.context.field))
