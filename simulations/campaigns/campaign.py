"""A campaign is a plan, a function from a study of it to figures, and how these are shown."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from protocol.errors import ConfigurationError
from simulations.campaigns.claims import Claim
from simulations.campaigns.render import Part, claims_table, setting_table
from simulations.campaigns.rows import Figures
from simulations.campaigns.study import Study
from simulations.common.figures import png
from simulations.common.files import write_whole
from simulations.common.provenance import provenance

if TYPE_CHECKING:
    from matplotlib.figure import Figure

P = TypeVar("P")

QUICK: Final = "quick"


@dataclass(frozen=True, slots=True)
class Options:
    """What a command says beside the name of a campaign; None for what the plan says."""

    preset: str | None = None  # which plan; the first one by default
    # To the plan's fields, lists of values each
    changes: Mapping[str, list[Any]] = field(default_factory=dict)
    seed: int = 1  # the first of those evaluated
    seeds: int | None = None  # how many


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign(Generic[P]):
    """A paper's results run again."""

    name: str  # of its command
    title: str  # of its page
    # Plans by name; the first is the usual one, "quick" takes seconds and no data sets
    presets: Mapping[str, P]
    figures: Callable[[Study[P]], dict[str, Any]]  # runs a study; returns plain values
    # Of its page, in order, from the figures; claims come before them by themselves
    parts: Callable[[Figures], Iterable[Part]]
    # By name, with which their files end where there are several
    plots: Mapping[str, Callable[[Figures], Figure]]
    # The verdicts on a paper's claims, from all other figures and nothing else
    claims: Callable[[Figures], Iterable[Claim]] | None = None
    # With which all files begin; names in braces stand for figures. The name if empty.
    stem: str = ""
    # Raises `ConfigurationError` for a plan that cannot be run here
    check: Callable[[P], None] = lambda _: None

    def plan(self, options: Options) -> P:
        """Return the plan of a command."""
        name = options.preset or next(iter(self.presets))
        if name not in self.presets:
            raise ConfigurationError("preset", f"value {name!r}", ", ".join(self.presets))
        plan: Any = self.presets[name]
        changes = {key: _typed(plan, key, values) for key, values in options.changes.items()}
        if options.seeds is not None:
            if not hasattr(plan, "seeds"):
                raise ConfigurationError("seeds", f"{self.name} has one run of everything", "none")
            changes["seeds"] = options.seeds
        try:
            found: P = replace(plan, **changes)
        except ValueError as error:
            raise ConfigurationError("set", str(error), "other values") from error
        self.check(found)
        return found

    def study(self, plan: P, folder: Path, seed: int = 1, **more: Any) -> Study[P]:
        """Open a study of a plan."""
        return Study(plan, folder, seed=seed, seeds=getattr(plan, "seeds", 1), **more)

    def run(self, study: Study[P], command: str = "") -> dict[str, Any]:
        """Return all figures of a study, with where they come from."""
        # First: what is edited while a campaign runs did not make its figures.
        made = provenance()
        with study:
            found = self.figures(study)
        origin = {"commit": made.commit, "source": made.source, "machine": made.machine}
        origin |= {"python": made.versions["python"], "command": command or self.name}
        figures = self.judged({**study.facts(), **origin, **found})
        return {**figures, "seconds": study.seconds}

    def judged(self, figures: Figures) -> dict[str, Any]:
        """Return figures with the claims that follow from them; nothing is run."""
        if self.claims is None:
            return {**figures}
        return {**figures, "claims": [asdict(claim) for claim in self.claims(figures)]}

    def page(self, figures: Figures) -> str:
        """Return the page as Markdown."""
        plots = [f"![{name}]({path})" for name, path in self._plots(figures).items()]
        parts = [part.markdown() for part in self.all_parts(figures)]
        head = [f"# {self.title}\n", _origin(figures), *(f"{plot}\n" for plot in plots)]
        return "\n".join([*head, *parts])

    def all_parts(self, figures: Figures) -> Iterable[Part]:
        """Yield the parts of the page: claims come first, the plan last."""
        if figures.get("claims"):
            yield claims_table(figures["claims"])
        yield from self.parts(figures)
        yield setting_table(figures)

    def _plots(self, figures: Figures) -> dict[str, str]:
        stem = self._stem(figures)
        many = len(self.plots) > 1
        return {name: f"{stem}-{name}.png" if many else f"{stem}.png" for name in self.plots}

    def _stem(self, figures: Figures) -> str:
        return (self.stem or self.name).format_map(figures)

    def write(self, figures: Figures, folder: Path) -> dict[str, Path]:
        """Write figures, page and plots into a folder, made if need be; return the files."""
        folder.mkdir(parents=True, exist_ok=True)
        stem = self._stem(figures)
        contents: dict[str, tuple[str, str | bytes]] = {
            "figures": (f"{stem}.json", json.dumps(figures, indent=1) + "\n"),
            "page": (f"{stem}.md", self.page(figures)),
        }
        for name, path in self._plots(figures).items():
            contents[name] = (path, png(self.plots[name](figures)))
        # The figures last: they say that all of it is there.
        for path, content in reversed(contents.values()):
            write_whole(folder / path, content)
        return {name: folder / path for name, (path, _) in contents.items()}


def _typed(plan: Any, key: str, values: list[Any]) -> Any:
    """Return values as the field of a plan has them: one, or a tuple of as many as there are."""
    names = [each.name for each in fields(plan) if each.name != "seeds"]
    if key not in names:
        raise ConfigurationError(key, "no field of the plan", ", ".join(names))
    usual = getattr(plan, key)
    like = (usual[0] if usual else values[0]) if isinstance(usual, tuple) else usual
    found = tuple(float(v) if type(like) is float and type(v) is int else v for v in values)
    kinds = (type(like),) if like is not None else (int, float, str)
    if not all(type(each) in kinds for each in found):
        kind = " or ".join(each.__name__ for each in kinds)
        raise ConfigurationError(key, f"value {values}", f"{kind}, as in {usual!r}")
    if isinstance(usual, tuple):
        return found
    if len(found) != 1:
        raise ConfigurationError(key, f"{len(found)} values", "one value")
    return found[0]


def _origin(figures: Figures) -> str:
    """Return the command that makes the figures, and on what they were made."""
    machine = figures["machine"]
    return (
        f"```console\nveilsum reproduce {figures['command']}\n```\n\n"
        f"Commit {figures['commit']} (source {figures['source']}), {machine['system']}, "
        f"{machine['processor']}, {machine['cores']} cores, Python {figures['python']}. "
        f"{figures['seconds'] / 60.0:.1f} minutes of processor time. What was read from the "
        f"paper, and what had to be chosen: docs/results/{figures['command'].split()[0]}.md.\n"
    )
