"""The ``what_if`` list of a scenario: things that go wrong."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from trainsim.scenario.fields import Factor, NotNegative, ScenarioSection, Seconds


class SlowSpec(ScenarioSection):
    """Something slower than the rest, from the first to the last instant of the step.

    With ``node`` (a number), ``rank`` or ``gpu`` (a rank number, or a name such as ``node3.gpu2``), kernels
    take ``factor`` times as long: 1.1 is 10 % slower. With ``link`` or ``nic`` (a name such as
    ``node3.nic0``), the bandwidth is ``factor`` of what it was: 0.5 is half.
    """

    factor: Factor  # of kernels: the time over what it was; of links: the bandwidth over what it was
    node: NotNegative | None = None  # all GPUs of a node
    gpu: str | NotNegative | None = None  # a GPU by name (`node3.gpu2`) or number
    rank: NotNegative | None = None  # a rank
    link: str | None = None  # a link, or all links of a device
    nic: str | None = None  # a NIC

    @model_validator(mode="after")
    def _one_target(self) -> SlowSpec:
        if sum(t is not None for t in (self.node, self.gpu, self.rank, self.link, self.nic)) != 1:
            raise ValueError("name one thing that is slow: node, gpu, rank, link or nic")
        return self


class FailSpec(ScenarioSection):
    """Something of the network that is out of service the whole time: a ``nic`` or its cable (``link``), so many more
    uplinks (``count``) of the leaf or pod called ``uplink``, a ``leaf``, a ``rail`` (a number) or a ``spine``."""

    nic: str | None = None  # a NIC
    link: str | None = None  # a cable of a NIC, or of a leaf with ecmp
    uplink: str | None = None  # uplinks of this leaf or pod
    count: NotNegative = 1  # how many more of them
    leaf: str | None = None  # a leaf, with all NICs on it
    rail: NotNegative | None = None  # this NIC of every node
    spine: str | None = None  # a spine

    @model_validator(mode="after")
    def _one_target(self) -> FailSpec:
        if sum(t is not None for t in (self.nic, self.link, self.uplink, self.leaf, self.rail, self.spine)) != 1:
            raise ValueError("name one thing that fails: nic, link, uplink, leaf, rail or spine")
        if self.uplink is None and "count" in self.model_fields_set:
            raise ValueError("count is of uplinks; name the leaf whose uplinks fail: uplink: leaf0")
        return self


class FlapSpec(ScenarioSection):
    """A ``link`` or a ``nic`` with a part of its bandwidth (``factor``; 0: nothing gets through) for some time of the
    run: ``from`` and ``until`` are seconds after it began."""

    link: str | None = None  # a link, or all links of a device
    nic: str | None = None  # a NIC
    since: Seconds = Field(alias="from")  # when it begins, after the run began
    until: Seconds  # when it is over
    factor: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    """The part of the bandwidth that is left; 0: nothing gets through."""

    @model_validator(mode="after")
    def _one_target(self) -> FlapSpec:
        if (self.link is None) == (self.nic is None):
            raise ValueError("name one thing that flaps: link or nic")
        if self.until <= self.since:
            when = "at the moment it begins" if self.until == self.since else f"before it begins at {self.since:g} s"
            raise ValueError(f"ends at {self.until:g} s, {when}; until is the later one")
        return self

    @model_serializer(mode="wrap")
    def _as_written(self, inner: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """As a file has it."""
        return {("from" if key == "since" else key): value for key, value in inner(self).items()}


class DelaySpec(ScenarioSection):
    """One rank loses time once in the step, before its first work of the kind ``at``."""

    rank: NotNegative  # who loses time
    at: Literal["forward", "backward", "optimizer"] = "forward"  # before its first work of this kind
    seconds: Seconds  # how much


class SkipSpec(ScenarioSection):
    """Gradients overflow in one of the steps: its update and the gather of parameters are left out."""

    step: NotNegative  # the step whose gradients overflow, from 0


class WhatIfSpec(ScenarioSection):
    """One perturbation. ``jitter`` of one thing cannot be simulated."""

    slow: SlowSpec | None = None  # something is slower than the rest
    delay: DelaySpec | None = None  # a rank loses time once
    skip: SkipSpec | None = None  # an update is left out
    jitter: Any = None  # refused: `simulation.jitter` draws at random
    fail: FailSpec | None = None  # something of the network is out of service
    flap: FlapSpec | None = None  # a link is slower or gone for a while

    @model_validator(mode="after")
    def _one_kind(self) -> WhatIfSpec:
        if len(self.model_fields_set) != 1:
            raise ValueError("write one of slow, delay, skip, fail, flap or jitter per entry of the list")
        return self
