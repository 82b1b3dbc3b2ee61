"""Lengths of documents in a scenario: a number, a list, or a distribution."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, Discriminator, Field, Tag

from trainsim.scenario.fields import Length, LengthOrNone, NotNegative, ScenarioSection, as_tuple


class DocumentsSpec(ScenarioSection):
    """Lengths that follow a distribution: tokens, and the seed by which those of a step are drawn."""

    mean: Length  # mean length of a document
    deviation: LengthOrNone = 0  # standard deviation of the lengths
    distribution: str = "lognormal"  # `lognormal`, `normal` or `uniform`
    seed: NotNegative = 0  # by which the documents of a step are drawn


def _kind(value: object) -> str | None:
    if isinstance(value, dict | BaseModel):
        return "<mapping>"
    return "<list>" if isinstance(value, list | tuple) else "<number>"


Documents = Annotated[
    Annotated[Length, Tag("<number>")]
    | Annotated[tuple[Length, ...], BeforeValidator(as_tuple), Field(min_length=1), Tag("<list>")]
    | Annotated[DocumentsSpec, Tag("<mapping>")],
    Discriminator(_kind),
]

Padding = Literal["none", "longest", "max"]
"""none: documents are packed into sequences; else each is a sequence of its own, as long as the longest of its
micro-batch or as ``sequence_length``."""
