"""The ``sharding`` section of a scenario: its own keys, and the options that the registered strategies declare."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, SerializeAsAny, WrapValidator, create_model

from trainsim.scenario.fields import Count, Degree, Device, NotNegativeCount, ScenarioSection
from trainsim.sharding import strategies
from trainsim.sharding.strategy_options import AUTO, Option

ACCEPTS: dict[str, Any] = {
    "count": Count,
    "count or 0": NotNegativeCount,
    "degree": Degree,
    "group": Degree,
    "flag": bool,
    "flag or group": bool | Degree,
    "flag or units": bool | Degree,
    "prefetch": Literal["pre", "post", "none"] | Degree,
    "units": Literal["layers", "layers_and_embeddings", "model"] | Degree,
}
"""The types of what options of sharding strategies accept."""


class OffloadSpec(ScenarioSection):
    """Where states live that are not on the GPU.

    ``ratio`` is the part of the optimizer that is not (DeepSpeed Twin-Flow); ``delayed_update`` lets the CPU's step run
    under the next step's passes, whose weights are then one step old.
    """

    optimizer: Device = "none"  # where optimizer states live
    parameters: Device = "none"  # where parameters live between uses
    ratio: Annotated[float, Field(gt=0, le=1)] = 1.0  # the part of the optimizer that is not on the GPU (Twin-Flow)
    delayed_update: bool = False  # the CPU's step runs under the next step's passes
    pipeline_read: bool = False  # drives are read while the host works
    pipeline_write: bool = False  # drives are written while the host works
    buffer_count: Annotated[int, Field(ge=1, le=1024)] = 4  # buffers for what comes from drives


class ShardingSpec(ScenarioSection):
    """How replicas share model states; the other keys are the options of the strategies (``sharding_section``)."""

    strategy: str | None = None  # what replicas share; left out: zero1, where there are replicas
    overlap: bool | None = None  # gradients are reduced under the backward pass; left out: the framework's
    offload: OffloadSpec = OffloadSpec()  # what lives in host memory or on drives

    @property
    def options(self) -> dict[str, Any]:
        """The options of strategies that are written, with their values."""
        return {
            key: getattr(self, key)
            for key in type(self).model_fields
            if key in self.model_fields_set and key not in ShardingSpec.model_fields
        }

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled by its values, since the class is made of what is registered."""
        return _read, (self.model_dump(exclude_unset=True),)


def sharding_section() -> type[ShardingSpec]:
    """The section with the options of all strategies that are registered by now."""
    options = {option.name: option for strategy in strategies.values() for option in strategy.options}
    return _section_of(tuple(strategies), tuple(options.values()))


@cache
def _section_of(names: tuple[str, ...], options: tuple[Option[Any], ...]) -> type[ShardingSpec]:
    fields: dict[str, Any] = {option.name: (_type_of(option), option.default) for option in options}
    fields["strategy"] = Literal[*names] | None, None
    return create_model("ShardingSpec", __base__=ShardingSpec, **fields)


def _type_of(option: Option[Any]) -> Any:
    accepted = ACCEPTS[option.accepts] if isinstance(option.accepts, str) else Literal[*option.accepts]
    if option.automatic is not None:
        accepted = Annotated[accepted, WrapValidator(_unless_auto), PlainSerializer(lambda value: value)]
    return accepted | None


def _unless_auto(value: object, number: Callable[[object], object]) -> object:
    """``auto`` as it is, and anything else as the number that it must be."""
    if value == AUTO:
        return value
    if isinstance(value, str) and not value.strip()[:1].isdigit():
        raise ValueError(f"expected a number of elements (500M, 2e8) or {AUTO}")
    return number(value)


def _read(values: Mapping[str, Any]) -> ShardingSpec:
    return sharding_section().model_validate(values)


def _with_options(value: object) -> object:
    return _read(value) if isinstance(value, dict) else value


def no_sharding() -> ShardingSpec:
    """A section in which nothing is written."""
    return sharding_section()()


ShardingSection = Annotated[SerializeAsAny[ShardingSpec], BeforeValidator(_with_options)]
"""The section as a field of the scenario."""
