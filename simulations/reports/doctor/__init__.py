"""`veilsum doctor`: what this installation is, what is wrong with it, and what helps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from simulations.reports.doctor import kernels, machine, packages
from simulations.reports.doctor.findings import Finding, Level, exit_status

__all__ = ["Finding", "Level", "examine", "exit_status"]


def examine(
    part_of_name: str,
    data_dir: Path | None,
    begin: Callable[[int, int, str], None],
    site: Path | None = None,
) -> Iterator[Finding]:
    """Check everything, in the order in which it matters to what follows.

    Args:
        data_dir: folder of data sets; None for what the environment says.
        site: folder of a site; None for no site.

    A check that fails itself is a finding too: the others are made all the same.
    """
    for subject, check in (
        *((("site", partial(_site, site)),) if site is not None else ()),
        ("versions", packages.versions),
        ("extras", packages.extras),
        ("torch", packages.torch_build),
        ("packages", packages.strangers),
        ("processor", machine.processor),
        ("folders", machine.folders),
        ("data sets", partial(machine.data_sets, data_dir)),
        ("known answers", partial(kernels.known_answers, part_of_name, begin)),
        ("compiled code", kernels.caches),
    ):
        try:
            yield from check()
        except Exception as error:
            found = f"could not be checked: {type(error).__name__}: {error}"
            yield Finding(Level.WRONG, subject, found, "install veilsum and what it needs anew")


def _site(home: Path) -> Iterator[Finding]:
    """What it needs, others may lack."""
    from simulations.reports.doctor.site import examine_site

    return examine_site(home)
