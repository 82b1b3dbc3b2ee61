"""The values that a scenario file is made of: numbers with their limits, and sections of them."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Annotated, Literal, TypeGuard

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from trainsim.units import BadQuantity, parse_count, parse_time

MOST_RANKS = 1 << 21
_REPEATED = re.compile(r"\s*(\d{1,9})\s*[x*]\s*(\d{1,7})\s*", re.ASCII)


def as_tuple(value: object) -> object:
    """A list of a YAML file as a frozen value."""
    return tuple(value) if isinstance(value, list) else value


def whole(value: object) -> object:
    """A whole number that may be written with a prefix; what is no text is left to the schema.

    >>> whole("2k"), whole("2Ki"), whole(7)
    (2000, 2048, 7)
    """
    if not isinstance(value, str):
        return value
    with suppress(BadQuantity):
        number = parse_count(value)
        if number.is_integer():
            return int(number)
    raise ValueError("expected a whole number, such as 2048, 2Ki (2,048) or 2k (2,000)")


def tokens(value: object) -> object:
    """The length of a sequence, in which k means 1,024 and M its square, as everybody means it there.

    >>> tokens("8k"), tokens("128K"), tokens("1M"), tokens("8Ki"), tokens(8000)
    (8192, 131072, 1048576, 8192, 8000)
    """
    return whole(f"{value.strip().upper()}i" if short_length(value) else value)


def short_length(value: object) -> TypeGuard[str]:
    """Whether a length is written with a prefix of which people differ on what it means."""
    return isinstance(value, str) and value.strip().endswith(("k", "K", "M"))


def repeated(value: object) -> object:
    """A list of numbers, some of which stand for several: ``6x10`` is ten times 6.

    >>> repeated([5, "6x3", 5]), repeated(["6 x2"])
    ((5, 6, 6, 6, 5), (6, 6))
    """
    if not isinstance(value, list | tuple):
        return value
    out: list[object] = []
    for entry in value:
        match = _REPEATED.fullmatch(entry) if isinstance(entry, str) else None
        if match and len(out) + int(match[2]) <= MOST_RANKS:
            out += [int(match[1])] * int(match[2])
        else:
            out.append(entry)
    return tuple(out)


Degree = Annotated[int, BeforeValidator(whole), Field(ge=1, le=MOST_RANKS)]
Size = Annotated[int, BeforeValidator(whole), Field(ge=1, le=1 << 27)]
NotNegative = Annotated[int, BeforeValidator(whole), Field(ge=0, le=1 << 27)]
Length = Annotated[int, BeforeValidator(tokens), Field(ge=1, le=1 << 27)]
LengthOrNone = Annotated[int, BeforeValidator(tokens), Field(ge=0, le=1 << 27)]
Count = Annotated[float, BeforeValidator(parse_count), Field(gt=0)]
NotNegativeCount = Annotated[float, BeforeValidator(parse_count), Field(ge=0)]
Seconds = Annotated[float, BeforeValidator(parse_time), Field(ge=0, le=1e6)]
Factor = Annotated[float, Field(ge=1e-6, le=1e6)]
Precision = Literal["fp32", "tf32", "fp16", "bf16", "fp8", "mxfp8", "nvfp4"]
Device = Literal["none", "cpu", "nvme"]


class ScenarioSection(BaseModel):
    """A mapping of the scenario file: unknown keys are refused, and a number must be written as one."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
