"""What is installed: versions beside their bounds, extras, and files that are not ours."""

from __future__ import annotations

import hashlib
import platform
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import (
    PackageNotFoundError,
    PackagePath,
    distribution,
    distributions,
    metadata,
    requires,
    version,
)
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from simulations.common.failures import EXTRAS
from simulations.common.provenance import OURS, provenance
from simulations.reports.doctor.findings import Finding, Level
from veilsum.extras import install_command, reinstall_command

_HOME: Final = Path(__file__).resolve().parents[3]
_FOLDERS: Final = (*OURS, "veilsum")


@dataclass(frozen=True, slots=True)
class _Package:
    """What is installed of a package, if anything, and what veilsum can work with."""

    name: str
    bounds: SpecifierSet
    version: str | None

    @classmethod
    def of(cls, requirement: Requirement) -> _Package:
        try:
            found = version(requirement.name)
        except PackageNotFoundError:
            found = None
        return cls(requirement.name, requirement.specifier, found)

    @property
    def fits(self) -> bool:
        return self.version is not None and self.bounds.contains(self.version, prereleases=True)

    def __str__(self) -> str:
        bounds = str(self.bounds) or "any"
        return f"{self.name} {self.version or 'is not installed'} (needs {bounds})"


def versions() -> Iterator[Finding]:
    """Our version, and those of Python and of what we cannot do without, beside their bounds."""
    made = provenance()
    ours = made.versions.get("veilsum")
    build = f"commit {made.commit or 'unknown'}, sources {made.source}, in {_HOME}"
    if ours is None:
        found = f"not installed, so it is unknown which versions it needs; {build}"
        yield Finding(Level.WARNING, "veilsum", found, install_command())
        return
    yield Finding(Level.OK, "veilsum", f"{ours}, {build}")
    bounds = SpecifierSet(metadata("veilsum")["Requires-Python"] or "")
    python = _Package("Python", bounds, platform.python_version())
    for package in (python, *_needed("")):
        if package.fits:
            yield Finding(Level.OK, "version", str(package))
        else:
            remedy = f'pip install "{package.name}{package.bounds}"'
            if package is python:
                remedy = f"make an environment with Python {bounds}"
            yield Finding(Level.WRONG, "version", str(package), remedy)


def extras() -> Iterator[Finding]:
    """Which extras are installed. A package of one may be there for another purpose."""
    for extra in sorted(set(EXTRAS.values())):
        packages = _needed(extra)
        subject, remedy = f"extra {extra}", install_command(extra)
        unfit = [package for package in packages if package.version and not package.fits]
        missing = [package.name for package in packages if package.version is None]
        if unfit:
            yield Finding(Level.WARNING, subject, ", ".join(map(str, unfit)), remedy)
        elif missing:
            found = f"without {', '.join(missing)}"
            yield Finding(Level.NOTE, subject, found, f"for what needs it: {remedy}")
        elif packages:
            yield Finding(Level.OK, subject, ", ".join(map(str, packages)))


def _needed(extra: str) -> list[_Package]:
    """What an extra needs, ourselves excepted; "" for what is always needed."""
    return [
        _Package.of(requirement)
        for requirement in map(Requirement, requires("veilsum") or ())
        if requirement.name != "veilsum"
        and _applies(requirement, extra)
        and not (extra and _applies(requirement, ""))
    ]


def _applies(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def torch_build() -> Iterator[Finding]:
    """What torch was built for, and whether it finds that."""
    try:
        import torch
    except ModuleNotFoundError:
        return
    if torch.version.cuda or torch.version.hip:
        built = f"CUDA {torch.version.cuda}" if torch.version.cuda else f"ROCm {torch.version.hip}"
        seen = torch.cuda.get_device_name() if torch.cuda.is_available() else "which finds no GPU"
        found = f"built for {built}, {seen}"
    else:
        found = "built for the CPU alone"
    yield Finding(Level.OK, "torch", f"{torch.__version__}, {found}")


def strangers() -> Iterator[Finding]:
    """Files of others in our packages; that Python imports ours is checked before this runs."""
    foreign, altered = _foreign_files(), _altered_files()
    for owner, path in foreign:
        found = f"{path} belongs to the distribution {owner}, in a package of veilsum"
        remedy = f"pip uninstall {owner}, then {reinstall_command()}"
        yield Finding(Level.WRONG, "packages", found, remedy)
    if altered:
        found = f"{len(altered)} files are not as they were installed, such as {altered[0]}"
        remedy = reinstall_command()
        yield Finding(Level.WARNING, "packages", found, remedy)
    if not foreign and not altered:
        yield Finding(Level.OK, "packages", f"{', '.join(_FOLDERS)} are veilsum's own")


def _foreign_files() -> list[tuple[str, Path]]:
    """The first file of each other distribution that has any in our packages, after its name."""
    found: dict[str, Path] = {}
    for each in distributions():
        name = each.metadata["Name"]
        if name == "veilsum":
            continue
        for file in each.files or ():
            if file.parts[0] in _FOLDERS:
                path = Path(str(file.locate())).resolve()
                if path.is_relative_to(_HOME / file.parts[0]):
                    found.setdefault(name, path)
    return list(found.items())


def _altered_files() -> list[Path]:
    """Files of ours that are not as pip wrote them; in an editable installation it wrote none."""
    return [
        Path(str(file.locate()))
        for file in distribution("veilsum").files or ()
        if file.parts[0] in _FOLDERS and file.hash is not None and not _is_as_written(file)
    ]


def _is_as_written(file: PackagePath) -> bool:
    path = Path(str(file.locate()))
    if file.hash is None or not path.exists():
        return False
    digest = hashlib.new(file.hash.mode, path.read_bytes()).digest()
    return urlsafe_b64encode(digest).decode().rstrip("=") == file.hash.value
