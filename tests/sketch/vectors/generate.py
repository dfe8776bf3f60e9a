"""Write hashing.json from the library; tests/sketch/test_vectors.py re-derives it independently.

Run from the root of the repository: python tests/sketch/vectors/generate.py
A change of the file is a breaking change of the maps (*).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sketch import PublicSeed
from sketch.hashing import Usage, buckets, derive_key, signs

SEEDS = {
    "zeros": bytes(32),
    "counting": bytes(range(32)),
    "ones": bytes([255]) * 32,
}
STREAMS = [usage for usage in Usage if usage is not Usage.PROBE]
# (row, columns, start, stop): block and byte borders, a far range, the extreme column counts.
CASES = [
    (0, 700, 0, 20),
    (1, 1, 3, 13),
    (14, 2**32, 1, 9),
    (2**32 - 1, 69905, 2**20 - 5, 2**20 + 5),
    (3, 15, 2**40 + 3, 2**40 + 9),
]


def _vector(name: str, seed: PublicSeed, case: tuple[int, int, int, int]) -> dict[str, Any]:
    row, columns, start, stop = case
    return {
        "name": f"{name}-row-{row}",
        "seed": seed.value.hex(),
        "row": row,
        "columns": columns,
        "start": start,
        "stop": stop,
        "keys": {usage.name: derive_key(seed, usage, row).hex() for usage in STREAMS},
        "probe_seed": seed.probe().value.hex(),
        "buckets": buckets(seed, row, columns, start, stop).tolist(),
        "signs": signs(seed, row, start, stop).tolist(),
    }


def main() -> None:
    """Write the file beside this script."""
    vectors = [
        _vector(name, PublicSeed(value), case) for name, value in SEEDS.items() for case in CASES
    ]
    path = Path(__file__).with_name("hashing.json")
    path.write_text(json.dumps({"version": 1, "vectors": vectors}, indent=1) + "\n")


if __name__ == "__main__":
    main()
