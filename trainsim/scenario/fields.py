"""The values that a scenario file is made of: numbers with their limits, and sections of them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from trainsim.units import parse_count, parse_time

MOST_RANKS = 1 << 21


def as_tuple(value: object) -> object:
    """A list of a YAML file as a frozen value."""
    return tuple(value) if isinstance(value, list) else value


Degree = Annotated[int, Field(ge=1, le=MOST_RANKS)]
Size = Annotated[int, Field(ge=1, le=1 << 27)]
NotNegative = Annotated[int, Field(ge=0, le=1 << 27)]
Count = Annotated[float, BeforeValidator(parse_count), Field(gt=0)]
NotNegativeCount = Annotated[float, BeforeValidator(parse_count), Field(ge=0)]
Seconds = Annotated[float, BeforeValidator(parse_time), Field(ge=0, le=1e6)]
Factor = Annotated[float, Field(ge=1e-6, le=1e6)]
Precision = Literal["fp32", "tf32", "fp16", "bf16", "fp8", "nvfp4"]
Device = Literal["none", "cpu", "nvme"]


class Section(BaseModel):
    """A mapping of the scenario file: unknown keys are refused, and a number must be written as one."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
