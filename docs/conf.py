"""Sphinx: the pages of this folder as a site, with a reference made from the code itself.

Run with: make docs
"""

from __future__ import annotations

import sys
from pathlib import Path

import veilsum

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

project = "veilsum"
author = "The veilsum authors"
project_copyright = "The veilsum authors, Apache-2.0"
version = release = veilsum.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "docstrings",
    "generated_pages",
    "mathml",
    "state_tables",
]
exclude_patterns = ["_ext", "_static"]
nitpicky = False  # annotations name types of NumPy and the standard library, which are not here

# Anchors as code-hosting pages make them, so that one link serves both.
myst_heading_anchors = 4
myst_fence_as_directive = ["mermaid"]
# Formulas as those pages read them: $...$ and $$...$$, but not "$5 and $6".
myst_enable_extensions = ["dollarmath"]
myst_dmath_allow_space = False
html_math_renderer = "mathml"

autodoc_member_order = "bysource"
# Inherited ones too, but not those of the standard library and of pydantic.
autodoc_default_options = {
    "members": True,
    "inherited-members": "BaseModel,BaseException,Enum,Thread,int,str,tuple",
}
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # else a documented field appears twice
napoleon_use_rtype = False

html_theme = "furo"
html_title = f"veilsum {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
