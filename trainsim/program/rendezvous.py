"""
Blocking messages: a send waits until its receiver has posted the receive, and both go on when all has arrived.

What a rank posts together is an exchange; the schedule says which exchanges stand where. Every message of one is a
handshake: the receiver tells the sender that it is ready, the bytes travel, the receiver tells that it has them. The
telling takes no time: it only carries the order.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainsim.contracts.groups import Messages
from trainsim.contracts.instructions import Instruction, Kernel, Send, Signal, Task, Template, Wait
from trainsim.program.parts import Parts
from trainsim.schedules import Work
from trainsim.schedules.messages import MessageBatch, PipelineMessage


class Rendezvous:
    """The exchanges of pipeline rank *rank* as tasks; messages that differ in the microbatch share templates."""

    def __init__(self, parts: Parts, rank: int):
        self.parts, self.rank = parts, rank
        self.mail: dict[str, list[Task]] = {}
        self._templates: dict[tuple[str, Work, int], Template] = {}
        sent = parts.job.framework.communication
        seconds = sent.p2p_announcement + sent.p2p_overhead
        wait = Kernel("p2p synchronisation", "pp", seconds, 0.0, 0.0, stream="pp")
        self._overhead = Template("exchange", 0, (wait,)) if seconds > 0 else None

    def tasks(self, exchange: MessageBatch, shift: int) -> Iterator[Task]:
        """Post everything, then wait until everything has arrived; ``mail`` grows by what is sent meanwhile.

        Each way has a chain of its own, so that a message whose peer is not ready holds up only its own way.
        """
        for message in exchange.sends:
            task = Task(self._template("send", message), message.microbatch + shift)
            self.mail.setdefault(str(self._way(message)), []).append(task)
        steps = (
            ("post receive", exchange.receives),
            ("post send", exchange.sends),
            ("receive", exchange.receives),
            ("sent", exchange.sends),
        )
        for step, messages in steps:
            for message in messages:
                yield Task(self._template(step, message), message.microbatch + shift)
        if self._overhead and (exchange.sends or exchange.receives):
            yield Task(self._overhead, (*exchange.sends, *exchange.receives)[0].microbatch + shift)

    def _template(self, step: str, message: PipelineMessage) -> Template:
        key = step, message.work, message.stage
        if key not in self._templates:
            self._templates[key] = Template("exchange", 0, tuple(self._instructions(step, message)))
        return self._templates[key]

    def _instructions(self, step: str, message: PipelineMessage) -> Iterator[Instruction]:
        direction = "forward" if message.work is Work.F else "backward"
        to = message.stage + (1 if message.work is Work.F else -1)
        posted, ready, got = (f"{what}.{direction}.{message.stage}" for what in ("posted", "ready", "got"))
        if step == "post receive":
            yield self._tell(self.parts.stages[message.stage].rank, ready)
        elif step == "post send":
            yield Signal(posted)
        elif step == "send":
            yield from (Wait(posted), Wait(ready))
            event, nbytes = f"{direction}.{to}", self.parts.message_bytes
            yield Send(f"{direction} to {to}", "pp", self._way(message), nbytes, event, blocking=True)
        elif step == "receive":
            yield Wait(f"{direction}.{to}")
            yield self._tell(self.parts.stages[message.stage].rank, got)
        else:
            yield Wait(got)

    def _way(self, message: PipelineMessage) -> Messages:
        forward = message.work is Work.F
        there = self.parts.stages[message.stage + (1 if forward else -1)].rank
        return self.parts.message_way(self.rank, there, "forward" if forward else "backward")

    def _tell(self, peer: int, event: str) -> Send:
        ranks = self.parts.job.parallel.pp
        follows = peer == self.rank + 1 or (ranks > 2 and peer == (self.rank + 1) % ranks)  # of two, one is before
        return Send(event, "pp", Messages("control", 1 if follows else -1), 0.0, event)
