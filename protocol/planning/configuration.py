"""Configuration files: TOML in, frozen and checked values out.

pydantic lives here, at the outer edge, and nowhere else. Every problem becomes a
`ConfigurationError` that names the key and what would be valid.
"""

from __future__ import annotations

import enum
import math
import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, TypeVar, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationError,
    ValidationInfo,
    create_model,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from dp.accounting import gaussian_epsilon
from dp.mechanisms import MechanismName
from protocol.checks import FRACTION, POSITIVE, RANGES
from protocol.errors import UNKNOWN, ConfigurationError, Remedy
from protocol.goal import PrivacyGoal
from protocol.noise.calibration import ERROR_SHARE
from protocol.noise.noise import Independent, Noise, Returned
from protocol.planning.training_plan import TrainingPlan
from protocol.round.field_size import WRAP_PROBABILITY
from protocol.schemes import OneShot, Pairwise, Validated
from protocol.schemes.committee import Drawn, Everyone, Named
from secagg import Mode, ParameterError
from secagg.checks import Range
from sketch.controllers import (
    AdaptBudget,
    AdaptNorm,
    AdaptNormTwoSketches,
    AdaptProgress,
    AdaptTail,
    Controller,
    FixedRate,
    Published,
    TwoStage,
)
from sketch.controllers.options import OPTIONS, options_of


class Section(BaseModel):
    """A table of a configuration file: immutable, and strict about unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    MOVED: ClassVar[Mapping[str, str]] = {}
    """Keys of earlier versions by their place in a file, and where they stand now."""


C = TypeVar("C", bound=Section)

MAX_CONFIG_BYTES = 1 << 14
"""Longest file that is read, many times a real one: reading a dotted key takes time quadratic in
its parts, some seconds for this many bytes."""

LIFETIME_SECONDS = 24 * 3600
"""Of a deployment's rounds unless told otherwise: more than a round takes, and an end to it."""

MAX_SHOWN = 200
"""Most characters of a wrong value in a message."""

_FOREIGN = "foreign_parameter"

_INSECURE_SEED = "insecure_seed"
"""What simulations may derive their secrets from. Whoever writes it into any other file, or into
another table, is told that it is not to be had there, rather than which keys are."""


def within(known: Range | str) -> Any:
    """The limits of a number, or those that its name has everywhere, for its annotation."""
    return Field(**(RANGES[known] if isinstance(known, str) else known).limits)


class Privacy(Section):
    """What is promised to every client."""

    epsilon: Annotated[float | None, within("epsilon")] = Field(
        default=None,
        description="guaranteed against the server, over all rounds; if left out, give "
        "noise_multiplier",
    )
    noise_multiplier: Annotated[float | None, within("noise_multiplier")] = Field(
        default=None,
        description="standard deviation of a sum's noise, divided by the clip; if left out, give "
        "epsilon",
    )
    delta: Annotated[float, within("delta")] = Field(description="delta of the same promise")
    clip_l2: Annotated[float, within(POSITIVE)] = Field(
        description="an update is shortened to this length (l2 norm)"
    )
    error_share: Annotated[float, within("error_share")] = Field(
        default=ERROR_SHARE,
        description="extra variance of the noise, relative to the Gaussian mechanism; lower "
        "values need more bits",
    )
    wrap_probability: float = Field(
        default=WRAP_PROBABILITY,
        ge=0,
        description="accepted probability that a sum does not fit its field and is lost; lower "
        "values need more bits",
    )
    moment_order: Annotated[float | None, within("moment_order")] = Field(
        default=None,
        description="count by truncated moments of this order, which is better for weak noise; by "
        "Gaussian domination if left out",
    )

    @model_validator(mode="after")
    def _one_target(self) -> Self:
        if (self.epsilon is None) == (self.noise_multiplier is None):
            raise ValueError("exactly one of epsilon and noise_multiplier must be given")
        return self

    def goal(self, rounds: int) -> PrivacyGoal:
        """What a client that takes part in so many rounds is promised."""
        epsilon = self.epsilon
        if self.noise_multiplier is not None:
            epsilon = gaussian_epsilon(math.sqrt(rounds) / self.noise_multiplier, self.delta)
        if epsilon is None:
            raise TypeError("no target")
        return PrivacyGoal(epsilon, self.delta, rounds, self.moment_order)


class Cohort(Section):
    """Who takes part in a round, and how many may fail or collude."""

    size: Annotated[int, within("cohort")] = Field(description="clients invited to a round")
    tolerated_dropouts: Annotated[int, within("tolerated_dropouts")] = Field(
        description="how many of them may drop out"
    )
    tolerated_colluders: Annotated[int, within("tolerated_colluders")] = Field(
        description="how many of them may collude with the server"
    )


def _kind_or(default: str) -> Discriminator:
    """Tells the tables of a union apart by their `kind`."""

    def kind_of(table: object) -> object:
        return table.get("kind", default) if isinstance(table, dict) else getattr(table, "kind", "")

    return Discriminator(kind_of)


_NOISE_KINDS = (
    "how rounds are connected: independent, every round has its own noise; returned, a share of it "
    "comes back in the next round; banded, a banded matrix, for a trusted server only"
)
_COMMITTEE_KINDS = "who opens the sums: everyone who is invited, or members named or drawn by lot"
_SCHEME_KINDS = (
    "pairwise: every client answers in every stage; one-shot: each uploads once, and a committee "
    "opens the sum; validated: likewise, of vectors no longer than a bound"
)


class IndependentTable(Section):
    """Every round has its own noise."""

    kind: Literal["independent"] = Field(default="independent", description=_NOISE_KINDS)
    mechanism: MechanismName = Field(
        default="binomial", description="the noise that each client adds"
    )
    exact: bool | None = Field(
        default=None,
        description="remove the noise that was added for clients who might drop out, and did "
        "not; if left out, binomial noise is removed and other noise stays",
    )


class _ScheduledTable(Section):
    """Noise that is planned for when clients take part."""

    apart: Annotated[int | None, within("apart")] = Field(
        default=None,
        description="minimum number of rounds between two participations of a client; as many as "
        "the schedule has if left out",
    )


class ReturnedTable(_ScheduledTable):
    """A part of a round's noise comes back in the next one."""

    kind: Literal["returned"] = Field(default="returned", description=_NOISE_KINDS)
    share: float | None = Field(
        default=None,
        ge=0,
        lt=1,
        description="share of a round's fresh variance that comes back; planned for the schedule "
        "if left out",
    )


class BandedTable(_ScheduledTable):
    """A banded matrix: for a trusted server only."""

    kind: Literal["banded"] = Field(default="banded", description=_NOISE_KINDS)


class EveryoneTable(Section):
    """Everyone who is invited is a member."""

    kind: Literal["everyone"] = Field(default="everyone", description=_COMMITTEE_KINDS)

    def build(self) -> Everyone:
        """The committee of this table."""
        return Everyone()


class NamedTable(Section):
    """Members that are named."""

    kind: Literal["named"] = Field(default="named", description=_COMMITTEE_KINDS)
    size: Annotated[int, within("size")] = Field(
        description="members of the committee", examples=[20]
    )
    corrupt: Annotated[int, within("corrupt")] = Field(
        description="how many members may collude with the server", examples=[2]
    )
    away: Annotated[int, within("away")] = Field(
        description="how many honest members may be away", examples=[2]
    )

    def build(self) -> Named:
        """The committee of this table."""
        return Named(**self.model_dump(exclude={"kind"}))


class DrawnTable(Section):
    """Members that are drawn by lot."""

    kind: Literal["drawn"] = Field(default="drawn", description=_COMMITTEE_KINDS)
    size: Annotated[int, within("size")] = Field(description="members, of those who are drawn")
    corrupt: Annotated[int, within("corrupt")] = Field(
        description="how many of all who can be drawn may collude"
    )
    away: Annotated[int, within("away")] = Field(description="how many honest members may be away")
    odds: Annotated[float, within(FRACTION)] = Field(
        description="chance of every client to be drawn in a round"
    )

    def build(self) -> Drawn:
        """The committee of this table."""
        return Drawn(**self.model_dump(exclude={"kind"}))


Committee = Annotated[
    Annotated[EveryoneTable, Tag("everyone")]
    | Annotated[NamedTable, Tag("named")]
    | Annotated[DrawnTable, Tag("drawn")],
    _kind_or("named"),
]


class PairwiseTable(Section):
    """Every client answers in every stage."""

    kind: Literal["pairwise"] = Field(default="pairwise", description=_SCHEME_KINDS)
    mode: Literal["active", "semi_honest"] = Field(
        default="active",
        description="active: the server may break every rule; semi_honest: it tells all clients "
        "the same survivors, which saves a round trip",
    )
    security_bits: Annotated[int | None, within("security_bits")] = Field(
        default=None,
        description="what a sparse graph may fail with, as bits: 80 for a chance of 2^-80; as many "
        "as the goal needs if left out",
    )

    def build(self) -> Pairwise:
        """The scheme of this table."""
        return Pairwise(mode=Mode(self.mode), security_bits=self.security_bits)


class OneShotTable(Section):
    """A client uploads once, and a committee opens the sum."""

    kind: Literal["one-shot"] = Field(default="one-shot", description=_SCHEME_KINDS)
    committee: Committee = Field(
        default=EveryoneTable(),
        description="who opens the sums; everyone if left out",
        json_schema_extra={"values": "a table of kind everyone, named or drawn"},
    )

    @property
    def mode(self) -> Literal["active"]:
        """What the server is trusted with: nothing."""
        return "active"

    def build(self) -> OneShot:
        """The scheme of this table."""
        return OneShot(committee=self.committee.build())


class ValidatedTable(OneShotTable):
    """A client uploads once, and a committee opens the sum of what is short enough."""

    kind: Literal["validated"] = Field(default="validated", description=_SCHEME_KINDS)  # type: ignore[assignment]

    def build(self) -> Validated:
        """The scheme of this table."""
        return Validated(committee=self.committee.build())


class PlanTables(Section):
    """What a training plan is made of, but for its rounds."""

    MOVED: ClassVar[Mapping[str, str]] = {
        "cohort.protocol": "scheme.kind",
        "cohort.mode": "scheme.mode",
        "cohort.security_bits": "scheme.security_bits",
        "cohort.committee_size": 'scheme.committee.size, with scheme.committee.kind = "named"',
        "cohort.committee_corrupt": "scheme.committee.corrupt",
        "cohort.committee_away": "scheme.committee.away",
        "cohort.committee_odds": 'scheme.committee.odds, with scheme.committee.kind = "drawn"',
        "cohort.exact_noise": "noise.exact",
        "cohort.apart": "noise.apart",
        "privacy.mechanism": "noise.mechanism",
        "privacy.noise": "noise.kind",
        "privacy.returned_share": "noise.share",
    }

    privacy: Privacy
    cohort: Cohort
    noise: Annotated[
        Annotated[IndependentTable, Tag("independent")]
        | Annotated[ReturnedTable, Tag("returned")]
        | Annotated[BandedTable, Tag("banded")],
        _kind_or("independent"),
    ] = IndependentTable()
    scheme: Annotated[
        Annotated[PairwiseTable, Tag("pairwise")]
        | Annotated[OneShotTable, Tag("one-shot")]
        | Annotated[ValidatedTable, Tag("validated")],
        _kind_or("pairwise"),
    ] = PairwiseTable()


CONTROLLERS: Mapping[str, type] = {
    "adapt_budget": AdaptBudget,
    "adapt_norm": AdaptNorm,
    "adapt_norm_two_sketches": AdaptNormTwoSketches,
    "adapt_progress": AdaptProgress,
    "adapt_tail": AdaptTail,
    "fixed": FixedRate,
    "published": Published,
    "two_stage": TwoStage,
}
"""Controllers by the name that a configuration gives them; their fields are its other keys."""


def _key(name: str) -> tuple[object, Any]:
    """Type and field of a key of `[sketch]`; a default only if all controllers have the option."""
    option = OPTIONS[name]
    kind: Any = next(each[name] for each in _PARAMETERS.values() if name in each)
    if issubclass(kind, enum.Enum):
        kind = Literal[tuple(each.value for each in kind)]
    numeric = kind in (int, float)
    shared = all(name in options for options in _PARAMETERS.values())
    default = getattr(AdaptNorm(), name) if shared else None
    return (kind if shared else kind | None), Field(
        default=default,
        gt=option.above,
        ge=option.least if numeric and option.above is None else None,
        lt=option.below,
        le=option.most,
        description=option.meaning,
    )


_PARAMETERS = {name: options_of(kind) for name, kind in CONTROLLERS.items()}
"""Of every controller its options and their types."""

if TYPE_CHECKING:

    class _SketchKeys(Section):
        """What is known of these keys before the program runs."""

        controller: str = "adapt_norm"
        rows: int = 1

else:
    _SketchKeys = create_model(
        "_SketchKeys",
        __base__=Section,
        controller=(
            Literal[tuple(CONTROLLERS)],
            Field(default="adapt_norm", description="what chooses the size of the sketch"),
        ),
        **{name: _key(name) for name in OPTIONS},
    )


class Sketch(_SketchKeys):
    """The compression and what tunes it.

    What is left out has the controller's own default. A key that the controller does not have is
    refused: it would be ignored, and somebody meant something by it.
    """

    @field_validator("*")
    @classmethod
    def _belongs(cls, value: object, info: ValidationInfo) -> object:
        controller = info.data.get("controller")
        if controller is None or value is None:
            return value
        known = _PARAMETERS[controller]
        if info.field_name not in known:
            raise PydanticCustomError(
                _FOREIGN,
                "left out: {controller} has only {known}",
                {"controller": controller, "known": ", ".join(sorted(known))},
            )
        return value

    def build(self, rounds: int) -> Controller:
        """The controller that this section describes."""
        given = self.model_dump(exclude={"controller"}, exclude_none=True)
        for name, kind in _PARAMETERS[self.controller].items():
            if issubclass(kind, enum.Enum) and name in given:
                given[name] = kind(given[name])
        if self.controller == "fixed":
            given.setdefault("rate", 1.0)
        if "horizon" in _PARAMETERS[self.controller]:
            given.setdefault("horizon", rounds)
        try:
            controller: Controller = CONTROLLERS[self.controller](**given)
        except ValueError as error:
            raise ConfigurationError("sketch", str(error), "values that fit together") from None
        return controller


def build_plan(
    tables: PlanTables, rounds: int, lifetime_seconds: int = 0, noise: Noise | None = None
) -> TrainingPlan:
    """The training plan of a configuration."""
    privacy, cohort = tables.privacy, tables.cohort
    if noise is None and not isinstance(tables.noise, IndependentTable):
        raise ConfigurationError(
            "noise.kind",
            f"value {tables.noise.kind!r} for noise that clients add",
            "independent; or a trusted server, in a simulation",
        )
    try:
        if isinstance(tables.noise, IndependentTable):
            noise = Independent(mechanism=tables.noise.mechanism, exact=tables.noise.exact)
        return TrainingPlan(
            goal=privacy.goal(rounds),
            cohort=cohort.size,
            tolerated_dropouts=cohort.tolerated_dropouts,
            tolerated_colluders=cohort.tolerated_colluders,
            clip_l2=privacy.clip_l2,
            noise=noise or Independent(),
            scheme=tables.scheme.build(),
            error_share=privacy.error_share,
            wrap_probability=privacy.wrap_probability,
            lifetime_seconds=lifetime_seconds,
        )
    except ParameterError as error:
        key, remedy = _key_of(error.argument, tables)
        raise ConfigurationError(key, f"value {error.value!r}", error.valid, remedy) from None


def returned_noise(tables: PlanTables, horizon: int | None) -> Returned | None:
    """The noise of a run of `horizon` rounds with parties elsewhere; None if it does not come back.

    Raises:
        ConfigurationError: the table `noise` and the horizon do not go together.
    """
    table = tables.noise
    if not isinstance(table, ReturnedTable):
        if horizon is not None:
            problem, valid = f"value {horizon}, and no noise comes back", "left out"
            raise ConfigurationError("horizon", problem, valid, Remedy.LEFT_OUT)
        return None
    if horizon is None or table.apart is None:
        key = "horizon" if horizon is None else "noise.apart"
        raise ConfigurationError(key, "missing where noise comes back", "a number of rounds")
    if table.share is not None:
        raise ConfigurationError("noise.share", f"value {table.share}", "left out: it is planned")
    if tables.privacy.noise_multiplier is not None:
        problem = "given for returned noise, of which one round says little"
        raise ConfigurationError(
            "privacy.noise_multiplier", problem, "privacy.epsilon, in its place"
        )
    return Returned(rounds=horizon, apart=table.apart)


def named_members(plan: TrainingPlan) -> int:
    """Members of a plan's named committee, for a framework's parties; 0 if it has none."""
    try:
        return plan.scheme.named_members(plan)
    except ParameterError as error:
        key = "scheme.committee.kind"
        raise ConfigurationError(key, f"value {error.value!r}", error.valid) from None


def _key_of(argument: str, tables: PlanTables) -> tuple[str, str | None]:
    """Where a configuration has what a plan calls by this name, and what is tried in its place."""
    if argument == "scheme":
        return "scheme.kind", "one-shot"
    if argument == "cohort":
        return "cohort.size", None
    scheme = tables.scheme
    if argument == "committee" and isinstance(scheme, OneShotTable):
        named = isinstance(scheme.committee, NamedTable)
        return ("scheme.committee.size", None) if named else ("scheme.committee.kind", "named")
    places: Mapping[str, Collection[str]] = {
        "privacy": Privacy.model_fields,
        "noise": ("mechanism", "exact", "apart"),
        "scheme": ("mode", "security_bits", "committee"),
        "scheme.committee": DrawnTable.model_fields,
    }
    table = next((each for each, names in places.items() if argument in names), "cohort")
    return f"{table}.{argument}", None


def load(path: Path, model: type[C]) -> C:
    """Read a TOML file and check what it says."""
    return parse(read(path), model)


def read(path: Path) -> dict[str, Any]:
    """Read a TOML file, which may say anything."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_CONFIG_BYTES + 1)
    except OSError as error:
        raise ConfigurationError(
            str(path), error.strerror or "unreadable", "a readable file"
        ) from None
    if len(data) > MAX_CONFIG_BYTES:
        raise ConfigurationError(str(path), "too long", f"at most {MAX_CONFIG_BYTES} bytes")
    try:
        raw = tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:
        # Bad UTF-8, bad TOML, numbers of thousands of digits, very deep nesting.
        raise ConfigurationError(str(path), str(error), "a TOML file") from None
    for key, value in _integers(raw):
        if value.bit_length() > 63:
            raise ConfigurationError(key, f"value {_shown(value)}", "an integer of 64 bits")
    return raw


def parse(raw: dict[str, Any], model: type[C]) -> C:
    """Check a configuration that is already in memory; raises as `load` does."""
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        refusal = ConfigurationError.together(_problems(error, model))
        raise refusal or error from None


def problems_in(raw: dict[str, Any], model: type[Section]) -> list[ConfigurationError]:
    """Everything that is wrong with a configuration in memory; `parse` raises one of it."""
    try:
        model.model_validate(raw)
    except ValidationError as error:
        return list(_problems(error, model))
    return []


def _problems(error: ValidationError, model: type[Section]) -> Iterator[ConfigurationError]:
    for each in error.errors():
        table, parts = _table_of(model, each["loc"])
        key = ".".join(parts)
        if each["type"] == "union_tag_invalid":
            tag, valid = each["ctx"]["tag"], each["ctx"]["expected_tags"].replace("'", "")
            yield ConfigurationError(f"{key}.kind", f"value {_shown(tag)}", f"one of {valid}")
        elif each["type"] not in ("extra_forbidden", "missing"):
            problem = f"value {_shown(each.get('input'))}"
            valid = "a table" if each["type"] == "model_type" else each["msg"].lower()
            remedy = Remedy.LEFT_OUT if each["type"] == _FOREIGN else None
            yield ConfigurationError(key, problem, valid, remedy)
        elif each["type"] == "missing":
            field = table.model_fields.get(parts[-1])
            remedy = next(iter(field.examples or ()), None) if field else None
            yield ConfigurationError(key, "missing", "a value, as it has no default", remedy)
        elif parts[-1] == _INSECURE_SEED:
            valid = "left out: secrets are never configured, but for simulations by the key "
            yield ConfigurationError(key, UNKNOWN, f"{valid}engine.{_INSECURE_SEED}")
        elif key in model.MOVED:
            yield ConfigurationError(key, UNKNOWN, f"{model.MOVED[key]}, where it has moved")
        else:
            yield ConfigurationError(key, UNKNOWN, ", ".join(sorted(table.model_fields)))


def _table_of(
    model: type[BaseModel], location: tuple[int | str, ...]
) -> tuple[type[BaseModel], list[str]]:
    """The table that a location is in, and the location as the file has it: without tags."""
    parts: list[str] = []
    tables: dict[str, type[BaseModel]] = {}
    for place, part in enumerate(map(str, location), start=1):
        if part in tables:
            model, tables = tables[part], {}
            continue
        parts.append(part)
        field = model.model_fields.get(part)
        annotation = field.annotation if field else None
        tables = {
            mark.tag: get_args(kind)[0]
            for kind in get_args(annotation)
            for mark in getattr(kind, "__metadata__", ())
            if isinstance(mark, Tag)
        }
        is_last = place == len(location)
        if isinstance(annotation, type) and issubclass(annotation, BaseModel) and not is_last:
            model = annotation
    return model, parts


def _integers(raw: dict[str, Any]) -> Iterator[tuple[str, int]]:
    """All integers by key. TOML promises 64 bits; its reader takes more, and its writer fails."""
    # Not recursive: a key may have thousands of parts.
    tables = [("", raw)]
    while tables:
        prefix, table = tables.pop()
        for name, value in table.items():
            if isinstance(value, dict):
                tables.append((f"{prefix}{name}.", value))
            elif isinstance(value, int):
                yield f"{prefix}{name}", value


def _shown(value: object) -> str:
    """A value for a message; some that TOML can hold cannot be printed, or not in one line."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        return f"of type {type(value).__name__}, too large to print"
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
