"""Finished results in files, so that an interrupted campaign goes on where it stopped."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from simulations.common.failures import kept_so_far
from simulations.common.files import write_whole


class Kept:
    """Results by name, one JSON file each, with all that they depend on.

    Args:
        folder: made if need be.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder

    def get(self, name: str, key: Mapping[str, Any], make: Callable[[], Any]) -> Any:
        """Return what is kept under a name if it depended on the same; else make and keep it."""
        found = self.find(name, key)
        return self.keep(name, key, make()) if found is None else found

    def find(self, name: str, key: Mapping[str, Any]) -> Any:
        """Return what is kept under a name if it depended on the same, else None."""
        path = self._folder / f"{name}.json"
        if not path.exists():
            return None
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["key"] != _plain(key):
            return None
        return found["result"]

    def keep(self, name: str, key: Mapping[str, Any], result: Any) -> Any:
        """Keep a result, whole or not at all; return it as `find` will."""
        plain = _plain(result)
        path = self._folder / f"{name}.json"
        with kept_so_far():
            write_whole(path, json.dumps({"key": _plain(key), "result": plain}, indent=1) + "\n")
        return plain


def _plain(value: Any) -> Any:
    """Return the value as JSON will give it back."""
    return json.loads(json.dumps(value))
