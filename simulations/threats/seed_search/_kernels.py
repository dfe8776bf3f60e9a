"""Compiled seeding of many Mersenne Twisters at once, only as far as their first outputs need.

Output j mixes the words j, j + 1 and j + 397 of the seeded state, and each word follows from the
one before it. So the first outputs of a seed need 397 words and a few more of its 624, and no twist
of the whole state. Seeds go side by side: the compiler puts them into lanes of vector registers.

Source: Matsumoto and Nishimura, ACM TOMACS 8 (1998); the seeding of their mt19937ar.c (2002).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from veilsum.compiled import compiled

Words = NDArray[np.uint32]

LANES = 64
"""Seeds side by side: enough to hide the latency of a multiplication, few enough for registers."""
LAG = 397
"""Distance of the far word that an output is made of."""
MOST_OUTPUTS = 624 - LAG
"""Outputs that the seeded state gives without a word of the next one."""


@compiled()
def first_outputs(seeds: Words, outputs: Words) -> None:
    """Write the first outputs for every seed, uint32[N], N a multiple of `LANES`.

    To uint32[count, N], count at most `MOST_OUTPUTS`.
    """
    count = outputs.shape[0]
    near = np.empty((count + 1, LANES), np.uint32)
    word = np.empty(LANES, np.uint32)
    for first in range(0, seeds.size, LANES):
        word[:] = seeds[first : first + LANES]
        near[0] = word
        for i in range(1, LAG):
            _next_words(word, i)
            if i <= count:
                near[i] = word
        for j in range(count):
            _next_words(word, LAG + j)
            _temper(near[j], near[j + 1], word, outputs[j, first : first + LANES])


@compiled()
def _next_words(word: Words, index: int) -> None:
    """Word `index` of every lane's state, from the word before it."""
    for lane in range(LANES):
        mixed = word[lane] ^ (word[lane] >> np.uint32(30))
        word[lane] = np.uint32(1812433253) * mixed + np.uint32(index)


@compiled()
def _temper(near: Words, after: Words, far: Words, out: Words) -> None:
    """One output of every lane from its three words."""
    for lane in range(LANES):
        joined = (near[lane] & np.uint32(0x8000_0000)) | (after[lane] & np.uint32(0x7FFF_FFFF))
        odd = np.uint32(0x9908_B0DF) * (joined & np.uint32(1))
        y = far[lane] ^ (joined >> np.uint32(1)) ^ odd
        y ^= y >> np.uint32(11)
        y ^= (y << np.uint32(7)) & np.uint32(0x9D2C_5680)
        y ^= (y << np.uint32(15)) & np.uint32(0xEFC6_0000)
        out[lane] = y ^ (y >> np.uint32(18))
