"""How an extra of this installation is installed, by a command that works where it came from."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_HOME: Final = Path(__file__).resolve().parents[1]


def install_command(extra: str = "", *options: str) -> str:
    """A pip command for this very veilsum, with an extra if one is named.

    A checkout is installed in place; a wheel or an archive from where it was taken. Only what came
    from a package index is named alone, as no other index may have it.
    """
    wanted = f"[{extra}]" if extra else ""
    words = ["pip", "install", *options]
    if _is_checkout():
        return " ".join([*words, "-e", f'"{_place()}{wanted}"'])
    source = _source()
    return " ".join([*words, f'"veilsum{wanted} @ {source}"' if source else f'"veilsum{wanted}"'])


def _is_checkout() -> bool:
    """Whether our sources are where they are installed from."""
    try:
        return 'name = "veilsum"' in (_HOME / "pyproject.toml").read_text(encoding="utf-8")
    except (OSError, ValueError):
        return False


def _place() -> str:
    """The checkout, from the current folder; that folder may be gone."""
    try:
        return "." if Path.cwd() == _HOME else str(_HOME)
    except OSError:
        return str(_HOME)


def reinstall_command() -> str:
    """What puts every file of ours back, and leaves all other packages alone."""
    return install_command("", "--force-reinstall", "--no-deps")


def _source() -> str | None:
    """The address that pip installed us from; None if that was an index."""
    # Loaded here: everybody imports this module, and few ask.
    import json
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        ours = distribution("veilsum")
    except PackageNotFoundError:
        return None
    noted = ours.read_text("direct_url.json")
    is_this = Path(str(ours.locate_file("veilsum"))).resolve() == _HOME / "veilsum"
    if not noted or not is_this:
        return None
    try:
        origin = json.loads(noted)
        url, version = str(origin["url"]), origin.get("vcs_info")
        return f"{version['vcs']}+{url}@{version['commit_id']}" if version else url
    except (ValueError, KeyError, TypeError):
        return None
