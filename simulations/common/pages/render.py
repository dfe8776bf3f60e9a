"""Pages that need nothing but themselves: no script, no network.

A page extends `base.html.jinja` and is rendered with `base.css` and a style sheet of its own.
Everything is escaped but our own style sheets and the plots, which escape what they write.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any, Final

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from simulations.common.pages.svg import Chart

HERE: Final = "simulations.common.pages"
TEMPLATE: Final = "page.html.jinja"
STYLE: Final = "page.css"


def render(package: str, **values: Any) -> str:
    """Return the page whose template and style sheet are in a package, as HTML."""
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package, ""), PackageLoader(HERE, "")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["drawn"] = _drawn
    sheets = (files(HERE).joinpath("base.css"), files(package).joinpath(STYLE))
    style = Markup("".join(sheet.read_text() for sheet in sheets))  # noqa: S704
    return environment.get_template(TEMPLATE).render(style=style, **values)


def _drawn(chart: Chart) -> Markup:
    """A plot; whoever draws one escapes what it writes."""
    return Markup(chart.svg)  # noqa: S704
