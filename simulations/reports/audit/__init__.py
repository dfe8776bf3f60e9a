"""`veilsum audit`: every check of the suite, run one by one, kept, and shown on one page."""

from simulations.reports.audit.results import AuditReport, UnitOutcome
from simulations.reports.audit.runner import run_units
from simulations.reports.audit.units import Unit, all_units

__all__ = ["AuditReport", "Unit", "UnitOutcome", "all_units", "run_units"]
