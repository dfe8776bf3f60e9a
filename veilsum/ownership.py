"""Whether the packages that Python would import are ours.

They have common names. Your own folder `protocol/` hides ours if it comes first on `sys.path`, and
pip lets another distribution with a `sketch/` overwrite ours. What follows is an error about some
missing name, far from its cause. So each package is looked up before it is imported: it has to lie
beside this one, and its source has to say that it is part of veilsum. That needs nothing but the
standard library.
"""

from __future__ import annotations

import re
import sys
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from veilsum.extras import reinstall_command

PACKAGES: Final = ("secagg", "dp", "sketch", "protocol", "simulations")
"""All of ours but this one, from the ground up."""

_HOME: Final = Path(__file__).resolve().parents[1]
_MARK: Final = re.compile(r'^__part_of__ = "veilsum"$', re.MULTILINE)


class ForeignPackageError(ImportError):
    """Python would import something else in place of a package of veilsum.

    Attributes:
        name: of the package.
        path: the file or folder in its place; None if there is none.
    """

    def __init__(self, message: str, package: str, path: Path | None) -> None:
        super().__init__(message, name=package, path=None if path is None else str(path))


def check_packages() -> None:
    """Look at every package of ours without importing it.

    In the process of the command line the error is one line and exit status 2, as all of them are.
    """
    for package in PACKAGES:
        spec = _found(package)
        if spec is None or not _is_ours(package, spec):
            error = _foreign(package, spec)
            if _is_command_line():
                print(f"{type(error).__name__}: {error}", file=sys.stderr)
                sys.exit(2)
            raise error


def _found(package: str) -> ModuleSpec | None:
    try:
        return find_spec(package)
    except ValueError:
        # Already imported, and made by hand: it has no origin, so it is not ours.
        return ModuleSpec(package, None)


def _is_ours(package: str, spec: ModuleSpec) -> bool:
    if spec.origin is None or Path(spec.origin).resolve().parent != _HOME / package:
        return False
    # A loader without sources (a frozen program, say) leaves the place alone to judge by.
    source = getattr(spec.loader, "get_source", lambda _: None)(package)
    return source is None or _MARK.search(source) is not None


def _foreign(package: str, spec: ModuleSpec | None) -> ForeignPackageError:
    """The error, with what helps: rename a file of one's own, uninstall what another installed."""
    path, ours = _place(spec), _HOME / package
    reinstall = reinstall_command()
    if path is None:
        text = f"Python finds no package {package} of veilsum's, which should be in {_HOME}"
        return ForeignPackageError(f"{text}: {reinstall}", package, None)
    owner = _owner(path)
    by = "" if owner is None else f" (it belongs to the distribution {owner})"
    remedies = [] if owner is None else [f"pip uninstall {owner}"]
    if path.resolve().is_relative_to(ours):
        text = f"{path} has been overwritten and is no longer veilsum's package {package}"
        remedies.append(reinstall)
    else:
        text = f"{path} is in the way of veilsum's package {package}, which is in {ours}"
        remedies = remedies or ["rename it, or take its folder off sys.path"]
    return ForeignPackageError(f"{text}{by}: {', then '.join(remedies)}", package, path)


def _place(spec: ModuleSpec | None) -> Path | None:
    """The file of a module, or the folder of a package without `__init__.py`."""
    if spec is None:
        return None
    if spec.origin is not None:
        return Path(spec.origin)
    return next((Path(folder) for folder in spec.submodule_search_locations or ()), None)


def _owner(path: Path) -> str | None:
    """The distribution, other than ours, that has installed a file, or one in a folder."""
    from importlib.metadata import distributions  # slow to load, and rarely needed

    for distribution in distributions():
        folder, name = Path(str(distribution.locate_file(""))), distribution.metadata["Name"]
        if name == "veilsum" or not path.is_relative_to(folder):
            continue
        inside = path.relative_to(folder).as_posix()
        names = (file.as_posix() for file in distribution.files or ())
        if any(each == inside or each.startswith(f"{inside}/") for each in names):
            return name
    return None


def _is_command_line() -> bool:
    """Whether this process is `veilsum`, or Python with `-m` and one of our two commands.

    Read from Python's own options, up to the first that is none: what follows is a program's. A
    library must not end a process that is somebody else's.
    """
    given = iter(sys.orig_argv[1:])
    for option in given:
        if not option.startswith("-"):
            return Path(option).stem == "veilsum"
        if option == "--check-hash-based-pycs":
            next(given, None)
        if option.startswith("--"):
            continue
        for place, letter in enumerate(option[1:], 2):
            if letter == "c":
                return False
            if letter == "m":
                return (option[place:] or next(given, "")) in ("veilsum", "simulations")
            if letter in "WX":
                # Its argument is the rest of the word, or the next word.
                if not option[place:]:
                    next(given, None)
                break
    return False
