"""All secrets of a simulated run, from one stored key.

In a deployment every party draws its own secrets and forgets them. A simulated run that is killed
after a round was charged and before its result was kept must be able to release the very same
result again, or it would pay twice; so here all secrets of a round follow from a key in the run's
folder and the round's number. The key never leaves the folder and is deleted when the run is over.
Whoever has it can take the noise off: keep the folder of a run on private data to yourself.

A run with `engine.insecure_seed` has no stored key: its key follows from the seed, which stands in
its configuration. That is for research, and protects nobody (`simulations.learning.insecure`).
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from dp import NoiseSeed
from protocol.errors import ConfigurationError
from secagg import Identity
from secagg.keys import AgreementKey, NeverCopied
from simulations.common.failures import RankError
from simulations.common.files import write_whole

KEY_BYTES = 32
_DOMAIN = b"veilsum/simulated run/v1/"
_INSECURE_DOMAIN = b"veilsum/insecure seed/v1/"


class RunSecrets(NeverCopied):
    """Derives what a round needs. Call `begin` before every round.

    Args:
        key: 32 bytes from the operating system; `open` also makes one from an insecure seed.
    """

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"the key of a run must have {KEY_BYTES} bytes, got {len(key)}")
        self._key = key
        self.attempt = 0

    def __repr__(self) -> str:
        return "RunSecrets(<secret>)"

    @classmethod
    def open(
        cls, path: Path, insecure_seed: int | None = None, *, given: bool = False
    ) -> RunSecrets:
        """The key in a file, which is made (mode 600) if there is none."""
        if insecure_seed is not None:
            if path.exists():
                raise ConfigurationError(
                    "engine.insecure_seed",
                    f"given for a run with secrets of its own, in {path}",
                    "left out, or another --out",
                )
            return cls(_insecure_key(insecure_seed))
        if not path.exists():
            if given:
                raise RankError("this rank was not given the secrets of the run")
            write_whole(path, secrets.token_bytes(KEY_BYTES), mode=0o600)
        return cls(path.read_bytes())

    def begin(self, attempt: int) -> None:
        """Derive the secrets of the round with this number of earlier attempts from now on."""
        self.attempt = attempt

    def noise(self, index: int) -> NoiseSeed:
        """The seed of a client's rounding and of the coins that stay."""
        return NoiseSeed(self._derive(f"noise {self.attempt} {index}", 32))

    def removable(self, index: int, count: int) -> Sequence[NoiseSeed]:
        """The seeds of a client's removable coins."""
        return [
            NoiseSeed(self._derive(f"removable {self.attempt} {index} {i}", 32))
            for i in range(count)
        ]

    def hiding(self) -> NoiseSeed:
        """The seed of the coins that hide a round's cohort: the server's secret."""
        return NoiseSeed(self._derive(f"hiding {self.attempt}", 32))

    def rand_of(self, index: int) -> Callable[[int], bytes]:
        """Every other secret of a client, one call after the other."""
        return self._stream(f"client {self.attempt} {index}")

    def tokens(self, index: int) -> Callable[[int], bytes]:
        """What draws a client's answers to a survey."""
        return self._stream(f"tokens {self.attempt} {index}")

    def public(self, count: int) -> bytes:
        """The public seed of a round."""
        return self._derive(f"public {self.attempt}", count)

    def bases(self, count: int) -> bytes:
        """The public seed of the bases that a run of PowerSGD begins with."""
        return self._derive("bases", count)

    def session_id(self, count: int) -> bytes:
        """The number of the run's session."""
        return self._derive("session", count)

    def identities(self, population: int) -> list[Identity]:
        """The signing keys of all clients."""
        return [
            Identity.from_private_bytes(self._derive(f"identity {client}", 32))
            for client in range(population)
        ]

    def members(self, count: int) -> list[Identity]:
        """The signing keys of a named committee's members."""
        return [
            Identity.from_private_bytes(self._derive(f"member {member}", 32))
            for member in range(count)
        ]

    def member_rand(self, identity: bytes) -> Callable[[int], bytes]:
        """Every secret of what a committee's member uploads, by its identity key."""
        return self._stream(f"member {self.attempt} {identity.hex()}")

    def member_noise(self, session_id: bytes, round_number: int, member: int) -> NoiseSeed:
        """The seed of what a committee's member adds in a round, by its index."""
        label = f"added {session_id.hex()} {round_number} {member}"
        return NoiseSeed(self._derive(label, 32))

    def sealing_key(self, session_id: bytes, identity: bytes) -> AgreementKey:
        """The sealing key of a committee's member, by its identity key."""
        return AgreementKey(self._derive(f"sealing {session_id.hex()} {identity.hex()}", 32))

    def _stream(self, label: str) -> Callable[[int], bytes]:
        used = 0

        def rand(count: int) -> bytes:
            nonlocal used
            used += 1
            return self._derive(f"{label} {used}", count)

        return rand

    def _derive(self, label: str, count: int) -> bytes:
        """HKDF-Expand gives at most 8160 bytes: longer strings come in numbered pieces."""
        pieces = []
        for start in range(0, count, 8000):
            info = _DOMAIN + f"{label}/{start}".encode()
            length = min(8000, count - start)
            hkdf = HKDFExpand(algorithm=SHA256(), length=length, info=info)
            pieces.append(hkdf.derive(self._key))
        return b"".join(pieces)


def _insecure_key(seed: int) -> bytes:
    """The key of a run that everybody can repeat: of the right length, and as secret as its seed.

    It does not depend on the rest of the configuration: runs that differ in a setting and have one
    seed meet the same noise, as far as they draw as much of it.
    """
    return hashlib.sha256(_INSECURE_DOMAIN + str(seed).encode()).digest()
