"""Privacy audits: what is claimed, held against what is measured; see docs/auditing.md."""

from simulations.audits.base import ALPHA, AuditedRelease, Check, Claim
from simulations.audits.distribution import LawTest, binomial_noise_test, independence_test
from simulations.audits.exact import accountant_margin, largest_hockey_stick, largest_log_ratio
from simulations.audits.one_run import OneRunBound, epsilon_bound, one_run, p_value
from simulations.audits.suite import FULL, QUICK, AuditSize, full_audit, quick_audit, run_audits
from simulations.audits.two_worlds import TwoWorldsBound, two_worlds

__all__ = [
    "ALPHA",
    "FULL",
    "QUICK",
    "AuditSize",
    "AuditedRelease",
    "Check",
    "Claim",
    "LawTest",
    "OneRunBound",
    "TwoWorldsBound",
    "accountant_margin",
    "binomial_noise_test",
    "epsilon_bound",
    "full_audit",
    "independence_test",
    "largest_hockey_stick",
    "largest_log_ratio",
    "one_run",
    "p_value",
    "quick_audit",
    "run_audits",
    "two_worlds",
]
