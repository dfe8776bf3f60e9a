"""The pieces of spooled items, column by column."""

from __future__ import annotations

import pytest

from secagg.oneshot.spool import Spool

WIDTH, COUNT = 5, 7
ITEMS = {number: bytes(range(number, number + WIDTH * COUNT)) for number in (3, 8, 1, 40)}


@pytest.mark.parametrize("in_memory", [0, 2 * WIDTH * COUNT, 1 << 20])
@pytest.mark.parametrize("together", [1, 2 * WIDTH * 3, 3 * WIDTH * 3, 1 << 20])
@pytest.mark.parametrize("numbers", [[1, 8, 40], [40, 3, 1]])
def test_a_column_is_the_piece_of_every_item(
    in_memory: int, together: int, numbers: list[int]
) -> None:
    spool = Spool(in_memory=in_memory)
    for number, item in ITEMS.items():
        spool.put(number, item)
    columns = list(spool.columns(numbers, WIDTH, COUNT, together))
    starts = range(0, WIDTH * COUNT, WIDTH)
    assert columns == [b"".join(ITEMS[i][s : s + WIDTH] for i in numbers) for s in starts]
    spool.clear()


def test_columns_are_read_when_they_are_wanted() -> None:
    reads: list[int] = []

    class Counting(Spool):
        def get(self, number: int, start: int = 0, length: int | None = None) -> bytes:
            reads.append(start)
            return super().get(number, start, length)

    spool = Counting()
    for number, item in ITEMS.items():
        spool.put(number, item)
    columns = spool.columns([1, 8], WIDTH, COUNT, together=2 * WIDTH * 3)
    for seen, starts in ((1, [0]), (2, [0]), (3, [0]), (4, [0, 3 * WIDTH])):
        next(columns)
        assert sorted(set(reads)) == starts, seen
