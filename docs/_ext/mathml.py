"""Formulas as MathML, which browsers set by themselves: no script, no font, no network."""

from __future__ import annotations

import re

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

LOGGER = logging.getLogger(__name__)
ESCAPED_BRACE = re.compile(r"\\[{}]")


def mathml(source: str, block: bool = False) -> str:
    """The `<math>` element of a formula in LaTeX's notation.

    Raises:
        MathError: a command is unknown, or a brace lacks its partner.
    """
    braces = ESCAPED_BRACE.sub("", source)
    if braces.count("{") != braces.count("}"):
        raise MathError(f'Unbalanced braces in "{source}".')
    return str(tex2mathml(source, as_block=block))


def _inline(translator: HTML5Translator, node: nodes.math) -> None:
    _append(translator, node, block=False)


def _block(translator: HTML5Translator, node: nodes.math_block) -> None:
    _append(translator, node, block=True)


def _append(translator: HTML5Translator, node: nodes.Element, block: bool) -> None:
    try:
        translator.body.append(mathml(node.astext(), block))
    except MathError as error:
        LOGGER.warning("a formula cannot be converted: %s", error, location=node)
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Let formulas be MathML in HTML."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
