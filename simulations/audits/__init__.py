"""Privacy audits: what is claimed against what is measured; see docs/auditing.md."""

from simulations.audits.base import ALPHA, AuditedRelease, Check, Claim, Effort
from simulations.audits.distribution import LawTest, independence_test, noise_test
from simulations.audits.exact import accountant_margin, largest_hockey_stick, largest_log_ratio
from simulations.audits.one_run import OneRunBound, epsilon_bound, one_run, p_value
from simulations.audits.suite import run_audits
from simulations.audits.two_worlds import TwoWorldsBound, two_worlds

__all__ = [
    "ALPHA",
    "AuditedRelease",
    "Check",
    "Claim",
    "Effort",
    "LawTest",
    "OneRunBound",
    "TwoWorldsBound",
    "accountant_margin",
    "epsilon_bound",
    "independence_test",
    "largest_hockey_stick",
    "largest_log_ratio",
    "noise_test",
    "one_run",
    "p_value",
    "run_audits",
    "two_worlds",
]
