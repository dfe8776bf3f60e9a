"""Processor time of this process and all that descend from it, as Linux keeps it.

A busy machine makes rounds longer; how long processors work for them it hardly changes.
"""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

_PARENT, _OWN_TIMES = 1, slice(11, 15)
"""Fields of `/proc/PID/stat` behind the command's name: the parent, and user and system time of the
process and of children that ended."""


def tree_seconds(root: int) -> float:
    """Seconds of a process, its descendants, and those of them that ended; 0 if nobody tells."""
    children, ticks = defaultdict[int, list[int]](list), dict[int, int]()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text()
        except OSError:
            # It ended since we saw it; its parent counts it from now on.
            continue
        # The name is in brackets and may hold anything.
        fields = text.rpartition(")")[2].split()
        children[int(fields[_PARENT])].append(int(path.parent.name))
        ticks[int(path.parent.name)] = sum(map(int, fields[_OWN_TIMES]))
    waiting, total = [root], 0
    while waiting:
        process = waiting.pop()
        total += ticks.get(process, 0)
        waiting.extend(children[process])
    return total / os.sysconf("SC_CLK_TCK")
