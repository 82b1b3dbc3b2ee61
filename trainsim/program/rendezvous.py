"""
Blocking messages: a send waits until its receiver has posted the receive, and both go on when all has arrived.

What a rank posts together is an exchange; the schedule says which exchanges stand where. Every message of one is a
handshake: the receiver tells the sender that it is ready, the bytes travel, the receiver tells that it has them. The
telling takes no time: it only carries the order.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainsim.program.instructions import Instruction, Kernel, Send, Task, Template, Wait
from trainsim.program.parts import Parts
from trainsim.schedules import Work
from trainsim.schedules.messages import Exchange, Message


class Rendezvous:
    """The exchanges of pipeline rank *rank* as tasks; messages that differ in the microbatch share templates."""

    def __init__(self, parts: Parts, rank: int):
        self.parts, self.rank = parts, rank
        self._templates: dict[tuple[str, Work, int], Template] = {}

    def tasks(self, exchange: Exchange, shift: int) -> Iterator[Task]:
        """Post all receives, start what the peers are ready for, wait until everything has arrived."""
        steps = (
            ("post", exchange.receives),
            ("send", exchange.sends),
            ("receive", exchange.receives),
            ("sent", exchange.sends),
        )
        for step, messages in steps:
            for message in messages:
                yield Task(self._template(step, message), message.microbatch + shift)
        overhead = self.parts.job.framework.p2p_overhead
        if overhead > 0 and (exchange.sends or exchange.receives):
            wait = Kernel("p2p synchronisation", "pp", overhead, 0.0, 0.0, stream="pp")
            yield Task(Template("exchange", 0, (wait,)), 0)

    def _template(self, step: str, message: Message) -> Template:
        key = step, message.work, message.stage
        if key not in self._templates:
            self._templates[key] = Template("exchange", 0, tuple(self._instructions(step, message)))
        return self._templates[key]

    def _instructions(self, step: str, message: Message) -> Iterator[Instruction]:
        direction = "forward" if message.work is Work.F else "backward"
        to = message.stage + (1 if message.work is Work.F else -1)
        ready, got = f"ready.{direction}.{message.stage}", f"got.{direction}.{message.stage}"
        if step == "post":
            yield self._tell(self.parts.stages[message.stage].rank, ready)
        elif step == "send":
            event, there = f"{direction}.{to}", self.parts.stages[to].rank
            yield Wait(ready)
            name = self.parts.message_way(self.rank, there, direction)
            yield Send(f"{direction} to {to}", "pp", name, self.parts.message_bytes, event)
        elif step == "receive":
            yield Wait(f"{direction}.{to}")
            yield self._tell(self.parts.stages[message.stage].rank, got)
        else:
            yield Wait(got)

    def _tell(self, peer: int, event: str) -> Send:
        follows = peer == (self.rank + 1) % self.parts.job.parallel.pp
        return Send(event, "pp", "control-next" if follows else "control-previous", 0.0, event)
