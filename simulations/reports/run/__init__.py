"""`veilsum report`: what runs did, on one page that needs nothing but itself."""

from __future__ import annotations

from simulations.reports.run.folders import find_runs, read_run
from simulations.reports.run.page import render_runs, write_page

__all__ = ["find_runs", "read_run", "render_runs", "write_page"]
