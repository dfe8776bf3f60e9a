"""The public names of a package as Markdown that asks autodoc for each, module by module."""

from __future__ import annotations

import importlib
import inspect
import re
from collections import defaultdict
from types import ModuleType

from sphinx.pycode import ModuleAnalyzer


def page(package: str) -> str:
    """All of `__all__`, below the modules that define it, with what each module says of itself."""
    module = importlib.import_module(package)
    homes: dict[str, list[str]] = defaultdict(list)
    for name in module.__all__:
        homes[_home(module, name)].append(name)
    parts = []
    for home, names in sorted(homes.items()):
        parts += [f"### `{home}`", _summary(home)]
        parts += [_entry(module, home, name) for name in sorted(names)]
    return "\n\n".join(parts)


def _home(package: ModuleType, name: str) -> str:
    """The module that defines a name; constants do not know theirs, so it is looked up."""
    thing = getattr(package, name)
    if inspect.isclass(thing) or inspect.isroutine(thing):
        return str(thing.__module__)
    source = inspect.getsource(package)
    imported = re.search(rf"from (\S+) import (?:\([^)]*?)?[^()\n]*\b{name}\b", source)
    return imported.group(1) if imported else package.__name__


def _summary(home: str) -> str:
    """The first paragraph of a module's docstring."""
    text = inspect.getdoc(importlib.import_module(home)) or ""
    return text.split("\n\n")[0].replace("\n", " ")


def _entry(package: ModuleType, home: str, name: str) -> str:
    thing = getattr(package, name)
    top = home.partition(".")[0]
    if top != package.__name__.partition(".")[0]:
        said = (inspect.getdoc(thing) or "").split("\n\n")[0].replace("\n", " ")
        return f"`{name}`, from [{top}]({top}.md): {said}"
    if inspect.isclass(thing):
        kind = "autoexception" if issubclass(thing, BaseException) else "autoclass"
        lines = [f".. {kind}:: {package.__name__}.{name}"]
    elif inspect.isroutine(thing):
        lines = [f".. autofunction:: {package.__name__}.{name}"]
    else:
        lines = [f".. py:data:: {package.__name__}.{name}", "", f"   {_said_of(home, name)}"]
    if _is_elsewhere(package, name):
        lines.insert(1, "   :no-index:")
    return "\n".join(["```{eval-rst}", *lines, "```"])


def _said_of(home: str, name: str) -> str:
    """The string below a constant."""
    texts = ModuleAnalyzer.for_module(home).find_attr_docs()
    return " ".join(texts.get(("", name), [])).strip()


def _is_elsewhere(package: ModuleType, name: str) -> bool:
    """Whether the package above has the same name for the same thing."""
    above = package.__name__.rpartition(".")[0]
    thing = getattr(package, name)
    return bool(above) and getattr(importlib.import_module(above), name, None) is thing
