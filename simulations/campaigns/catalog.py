"""The campaigns by name, each with a line about it; a campaign is loaded when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from simulations.campaigns.campaign import Campaign

PAPERS: Final = {
    "adaptive-mean": "mean estimation with autotuned sketches: error and size, in two forms",
    "autotune": "autotuned sketches: accuracy and rate by controller, beside fixed rates",
    "compression": "gradient compression under example-level privacy: accuracy, bytes, errors",
    "cpsgd": "cpSGD: Theorems 3 and 4 against simulation, Figure 1 under two accountants",
    "cpsgd-mnist": "cpSGD's Figure 2 with MNIST: accuracy by k, m and epsilon",
    "fedsel": "FedSel: Table 3 and Figure 2 (f) to (i), at common learning rates and at own ones",
    "secure-autotune": "autotuned sketches behind real secure sums, beside a trusted server",
    "sqsgd": "sqSGD's Figures 1 to 3: accuracy by levels, epsilon and baseline",
}
STUDIES: Final = {
    "attackers": "malicious clients under sums, validated sums and robust rules: accuracy",
    "correlated": "noise that comes back over rounds, beside independent noise and a matrix",
    "equal-error": "epsilon at equal error: this system, other noise, and local privacy",
    "secure-compression": "secure PowerSGD, clips that follow norms, and Denoise: do they help?",
    "statistics": "surveys beside a trusted server and local privacy: errors, items, intervals",
    "trust-models": "local, distributed and central privacy on one task, at equal epsilon",
}
CAMPAIGNS: Final = {**PAPERS, **STUDIES}

_FOLDERS: Final = {"cpsgd-mnist": "cpsgd_training"}


def campaign(name: str) -> Campaign[Any]:
    """Load a campaign."""
    # Here, as the command line lists campaigns without loading anything.
    from protocol.errors import ConfigurationError

    if name not in CAMPAIGNS:
        raise ConfigurationError("campaign", f"{name!r} is unknown", ", ".join(CAMPAIGNS))
    room = "reproduce" if name in PAPERS else "studies"
    folder = _FOLDERS.get(name, name.replace("-", "_"))
    found: Campaign[Any] = import_module(f"simulations.{room}.{folder}.campaign").CAMPAIGN
    return found
