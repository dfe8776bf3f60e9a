"""Configuration files: TOML in, frozen and checked values out.

pydantic lives here, at the outer edge, and nowhere else. Every problem becomes a
`ConfigurationError` that names the key and what would be valid.
"""

from __future__ import annotations

import enum
import math
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    create_model,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from dp.accounting import gaussian_epsilon
from dp.mechanisms import MechanismName
from protocol.errors import ConfigurationError
from protocol.goal import PrivacyGoal
from protocol.planning.calibration import ERROR_SHARE
from protocol.planning.committee import CommitteePlan
from protocol.planning.plan_checks import ProtocolName
from protocol.planning.returned import ReturnedPlan
from protocol.planning.training_plan import TrainingPlan
from protocol.round.field_size import WRAP_PROBABILITY
from secagg import Mode, ParameterError
from secagg.oneshot.committee import CommitteeKind
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


C = TypeVar("C", bound=Section)

NoiseName = Literal["independent", "returned", "banded"]
"""How the noise of one round depends on that of others."""

MAX_CONFIG_BYTES = 1 << 14
"""Longest file that is read, many times a real one: reading a dotted key takes time quadratic in
its parts, some seconds for this many bytes."""

LIFETIME_SECONDS = 24 * 3600
"""Of a deployment's rounds unless told otherwise: more than a round takes, and an end to it."""

MAX_SHOWN = 200
"""Most characters of a wrong value in a message."""

UNKNOWN = "unknown key"

_INSECURE_SEED = "insecure_seed"
"""What simulations may derive their secrets from. Whoever writes it into any other file, or into
another table, is told that it is not to be had there, rather than which keys are."""


class Privacy(Section):
    """What is promised to every client."""

    epsilon: float | None = Field(
        default=None,
        gt=0,
        description="guaranteed against the server, over all rounds; if left out, give "
        "noise_multiplier",
    )
    noise_multiplier: float | None = Field(
        default=None,
        gt=0,
        description="standard deviation of a sum's noise, divided by the clip; if left out, give "
        "epsilon",
    )
    delta: float = Field(gt=0, lt=1, description="delta of the same promise")
    clip_l2: float = Field(gt=0, description="an update is shortened to this length (l2 norm)")
    error_share: float = Field(
        default=ERROR_SHARE,
        gt=0,
        le=1,
        description="extra variance of the noise, relative to the Gaussian mechanism; less costs "
        "bits",
    )
    wrap_probability: float = Field(
        default=WRAP_PROBABILITY,
        ge=0,
        description="accepted probability that a sum does not fit its field and is lost; less "
        "costs bits",
    )
    mechanism: MechanismName = Field(
        default="binomial", description="the noise that each client adds"
    )
    moment_order: float | None = Field(
        default=None,
        gt=1,
        allow_inf_nan=False,
        description="count by truncated moments of this order, which is better for weak noise; by "
        "Gaussian domination if left out",
    )
    noise: NoiseName = Field(
        default="independent",
        description="how rounds are connected: independent, every round has its own noise; "
        "returned, a share of it comes back in the next round; banded, a banded matrix, for a "
        "trusted server only",
    )
    returned_share: float | None = Field(
        default=None,
        ge=0,
        lt=1,
        description="share of a round's fresh variance that comes back; planned for the schedule "
        "if left out",
    )

    @field_validator("returned_share")
    @classmethod
    def _comes_back(cls, value: float | None, info: ValidationInfo) -> float | None:
        noise = info.data.get("noise")
        if value is None or noise in (None, "returned"):
            return value
        raise PydanticCustomError(
            "nothing_returns", "left out: {noise} noise does not come back", {"noise": noise}
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

    size: int = Field(ge=2, description="clients invited to a round")
    tolerated_dropouts: int = Field(ge=0, description="how many of them may drop out")
    tolerated_colluders: int = Field(
        ge=0, description="how many of them may collude with the server"
    )
    mode: Literal["active", "semi_honest"] = Field(
        default="active",
        description="active: the server may break every rule; semi_honest: it tells all clients "
        "the same survivors, which saves a round trip",
    )
    exact_noise: bool | None = Field(
        default=None,
        description="remove the noise that was added for clients who might drop out, and did "
        "not; if left out, binomial noise is removed and other noise stays",
    )
    security_bits: int | None = Field(
        default=None,
        ge=1,
        description="what a sparse graph may fail with, as bits: 80 for a chance of 2^-80; as many "
        "as the goal needs if left out",
    )
    protocol: ProtocolName = Field(
        default="pairwise",
        description="pairwise: every client answers in every stage; one-shot: each uploads once, "
        "and a committee opens the sum",
    )
    committee_size: int | None = Field(
        default=None,
        ge=1,
        description="members of a named or drawn committee of one-shot rounds; everyone who is "
        "invited is a member if left out",
    )
    committee_corrupt: int | None = Field(
        default=None,
        ge=0,
        description="how many members of a named committee may collude, or of all who can be on a "
        "drawn one; left out without one",
    )
    committee_away: int | None = Field(
        default=None,
        ge=0,
        description="how many honest members may be away; left out without such a committee",
    )
    committee_odds: float | None = Field(
        default=None,
        gt=0.0,
        lt=1.0,
        description="chance of every client to be drawn in a round: committee_size of those who "
        "are make the committee; left out if it is named",
    )
    apart: int | None = Field(
        default=None,
        ge=1,
        description="rounds from one participation of a client to its next, at least; what noise "
        "that is not independent is planned for; as many as the schedule has if left out",
    )

    def committee(self) -> CommitteePlan | None:
        """The named or drawn committee; None if there is none.

        Raises:
            ParameterError: a number is missing.
        """
        numbers = {"size": self.committee_size, "corrupt": self.committee_corrupt}
        numbers["away"] = self.committee_away
        if self.committee_odds is not None:
            return CommitteePlan(kind=CommitteeKind.DRAWN, odds=self.committee_odds, **numbers)
        if set(numbers.values()) == {None}:
            return None
        return CommitteePlan(kind=CommitteeKind.NAMED, **numbers)


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
                "foreign_parameter",
                "left out: {controller} has only {known}",
                {"controller": controller, "known": ", ".join(sorted(known))},
            )
        return value

    def build(self, rounds: int) -> Controller:
        """The controller that this section describes.

        Args:
            rounds: of the run, for controllers that plan ahead and were told nothing else.

        Raises:
            ConfigurationError: values that do not fit together.
        """
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
    privacy: Privacy,
    cohort: Cohort,
    rounds: int,
    lifetime_seconds: int = 0,
    returned: ReturnedPlan | None = None,
) -> TrainingPlan:
    """The training plan of a configuration.

    Args:
        rounds: of one client.
        lifetime_seconds: of a round; 0 if it never expires.
        returned: what is known of the run, where a part of the noise comes back; such noise is
            refused if this is left out.

    Raises:
        ConfigurationError: the figures do not fit together.
    """
    if returned is None or privacy.noise != "returned":
        refuse_correlated_sums(privacy, cohort)
        returned = None
    elif privacy.returned_share is not None:
        raise ConfigurationError(
            "privacy.returned_share",
            f"value {privacy.returned_share}",
            "left out: where clients and members add the noise it is planned",
        )
    try:
        return TrainingPlan(
            goal=privacy.goal(rounds),
            cohort=cohort.size,
            tolerated_dropouts=cohort.tolerated_dropouts,
            tolerated_colluders=cohort.tolerated_colluders,
            clip_l2=privacy.clip_l2,
            mode=Mode(cohort.mode),
            mechanism=privacy.mechanism,
            exact_noise=cohort.exact_noise,
            error_share=privacy.error_share,
            wrap_probability=privacy.wrap_probability,
            security_bits=cohort.security_bits,
            lifetime_seconds=lifetime_seconds,
            protocol=cohort.protocol,
            committee=cohort.committee(),
            returned=returned,
        )
    except ParameterError as error:
        section = "privacy" if error.argument in Privacy.model_fields else "cohort"
        raise ConfigurationError(
            f"{section}.{error.argument}", f"value {error.value!r}", error.valid
        ) from None


def refuse_correlated_sums(privacy: Privacy, cohort: Cohort) -> None:
    """See that the noise of a secure sum is that of its round alone.

    Raises:
        ConfigurationError: it is not, or the distance of participations is given for nothing.
    """
    if privacy.noise != "independent":
        raise ConfigurationError(
            "privacy.noise",
            f"value {privacy.noise!r} for noise that clients add",
            "independent; or a trusted server, in a simulation",
        )
    if cohort.apart is not None:
        raise ConfigurationError(
            "cohort.apart",
            "given for independent noise",
            "left out: only noise that is not independent is planned by it",
        )


def load(path: Path, model: type[C]) -> C:
    """Read a TOML file.

    Raises:
        ConfigurationError: the file is missing, too long or no TOML, a key is unknown or missing,
            or a value is out of range.
    """
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
    return parse(raw, model)


def parse(raw: dict[str, Any], model: type[C]) -> C:
    """Check a configuration that is already in memory; raises as `load` does."""
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        # An unknown key before all else: what is missing is often there, under a wrong name.
        raise min(_problems(error, model), key=lambda found: found.problem != UNKNOWN) from None


def problems_in(raw: dict[str, Any], model: type[Section]) -> list[ConfigurationError]:
    """Everything that is wrong with a configuration in memory; `parse` raises one of it."""
    try:
        model.model_validate(raw)
    except ValidationError as error:
        return list(_problems(error, model))
    return []


def _problems(error: ValidationError, model: type[Section]) -> Iterator[ConfigurationError]:
    for each in error.errors():
        key = ".".join(str(part) for part in each["loc"])
        if each["type"] == "extra_forbidden" and each["loc"][-1] == _INSECURE_SEED:
            valid = "left out: secrets are never configured, but for simulations by the key "
            yield ConfigurationError(key, UNKNOWN, f"{valid}engine.{_INSECURE_SEED}")
        elif each["type"] == "extra_forbidden":
            yield ConfigurationError(key, UNKNOWN, _known_keys(model, each["loc"]))
        elif each["type"] == "missing":
            yield ConfigurationError(key, "missing", "a value, as it has no default")
        else:
            problem = f"value {_shown(each.get('input'))}"
            yield ConfigurationError(key, problem, each["msg"].lower())


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


def _known_keys(model: type[BaseModel], location: tuple[int | str, ...]) -> str:
    """The keys of the table that a location is in."""
    for part in location[:-1]:
        annotation = model.model_fields[str(part)].annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            model = annotation
    return ", ".join(sorted(model.model_fields))
