"""Which rings may be used, and how hard the lattice problem in them is.

Bits are those of the primal attack by the core-SVP count, 0.292 times the block size, against
ring-LWE with secret and errors of parameter 3.2: half the width that is drawn, since sums of keys
and errors become known (docs/one-shot-security.md). A test computes them again. Rings beyond the
table are refused; a weak one is accepted only by its name.

Source of the count: Alkim, Ducas, Poeppelmann and Schwabe, USENIX Security 2016.
"""

from __future__ import annotations

from dataclasses import dataclass

from secagg.errors import ParameterError
from secagg.oneshot.ring import Ring

HINTED_SIGMA = 3.2
"""Width that the estimates hold for; keys and errors are drawn at twice this width."""


@dataclass(frozen=True, slots=True)
class AllowedRing:
    """A ring and its strength.

    Attributes:
        ring: the ring.
        core_svp_bits: classical core-SVP bits, rounded.
        weak: whether it is used only if asked for by name.
    """

    ring: Ring
    core_svp_bits: int
    weak: bool = False

    @property
    def name(self) -> str:
        """Degree and number of primes, as in 8192x7."""
        return f"{self.ring.degree}x{self.ring.limbs}"


ALLOWED_RINGS = (
    AllowedRing(Ring(1024, 1), 112),
    AllowedRing(Ring(2048, 1), 273),
    AllowedRing(Ring(2048, 2), 104),
    AllowedRing(Ring(4096, 1), 630),
    AllowedRing(Ring(4096, 2), 263),
    AllowedRing(Ring(4096, 3), 151),
    AllowedRing(Ring(4096, 4), 100, weak=True),
    AllowedRing(Ring(8192, 1), 1407),
    AllowedRing(Ring(8192, 2), 624),
    AllowedRing(Ring(8192, 3), 375),
    AllowedRing(Ring(8192, 4), 257),
    AllowedRing(Ring(8192, 5), 190),
    AllowedRing(Ring(8192, 6), 148),
    AllowedRing(Ring(8192, 7), 119),
)
"""All rings that may be used, weak ones included, by ascending size."""


def check_ring(ring: Ring, weak: str | None = None) -> AllowedRing:
    """The table's entry for a ring."""
    for allowed in ALLOWED_RINGS:
        if allowed.ring == ring:
            if allowed.weak and weak != allowed.name:
                bits = allowed.core_svp_bits
                valid = f"another one: it has {bits} bits, unless {allowed.name!r} is asked for"
                raise ParameterError("ring", allowed.name, valid)
            return allowed
    names = ", ".join(allowed.name for allowed in ALLOWED_RINGS if not allowed.weak)
    raise ParameterError("ring", f"{ring.degree}x{ring.limbs}", f"one of {names}")
