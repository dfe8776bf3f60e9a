"""What reports as HTML pages have in common: a base template, its looks, plots as inline SVG."""

from __future__ import annotations

from simulations.common.pages.render import render
from simulations.common.pages.svg import Chart

__all__ = ["Chart", "render"]
