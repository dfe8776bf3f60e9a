"""`veilsum audit`: every check of the suite, run one by one, kept, and shown on one page."""

from simulations.audit_report.results import AuditReport, Outcome
from simulations.audit_report.runner import run_units
from simulations.audit_report.units import Unit, all_units

__all__ = ["AuditReport", "Outcome", "Unit", "all_units", "run_units"]
