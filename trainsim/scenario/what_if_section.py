"""The ``what_if`` list of a scenario: things that go wrong."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import model_validator

from trainsim.scenario.fields import Factor, NotNegative, ScenarioSection, Seconds


class SlowSpec(ScenarioSection):
    """Something slower than the rest, from the first to the last instant of the step.

    With ``node`` (a number), ``rank`` or ``gpu`` (a rank number, or a name such as ``node3.gpu2``), kernels
    take ``factor`` times as long: 1.1 is 10 % slower. With ``link`` or ``nic`` (a name such as
    ``node3.nic0``), the bandwidth is ``factor`` of what it was: 0.5 is half.
    """

    factor: Factor
    node: NotNegative | None = None
    gpu: str | NotNegative | None = None
    rank: NotNegative | None = None
    link: str | None = None
    nic: str | None = None

    @model_validator(mode="after")
    def _one_target(self) -> SlowSpec:
        if sum(t is not None for t in (self.node, self.gpu, self.rank, self.link, self.nic)) != 1:
            raise ValueError("name one thing that is slow: node, gpu, rank, link or nic")
        return self


class DelaySpec(ScenarioSection):
    """One rank loses time once in the step, before its first work of the kind ``at``."""

    rank: NotNegative
    at: Literal["forward", "backward", "optimizer"] = "forward"
    seconds: Seconds


class SkipSpec(ScenarioSection):
    """Gradients overflow in one of the steps: its update and the gather of parameters are left out."""

    step: NotNegative


class WhatIfSpec(ScenarioSection):
    """One perturbation. This version cannot simulate ``jitter`` and ``fail`` yet."""

    slow: SlowSpec | None = None
    delay: DelaySpec | None = None
    skip: SkipSpec | None = None
    jitter: Any = None
    fail: Any = None

    @model_validator(mode="after")
    def _one_kind(self) -> WhatIfSpec:
        if len(self.model_fields_set) != 1:
            raise ValueError("write one of slow, delay, skip, jitter or fail per entry of the list")
        return self
