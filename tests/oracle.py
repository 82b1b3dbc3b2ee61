"""
The obvious simulator: every rank, no SimPy, no folding, no marks, no memory of anything. All rates are solved anew at
every instant, in plain floats. The oracle of engine and fold.
"""

from __future__ import annotations

from collections import defaultdict

from trainsim.contracts.instructions import Kernel, Meet, Send, Signal, Wait
from trainsim.engine.fairshare import FLOOR

CLOSE = 1e-12


def fair_rates(activities, lost=None):
    """Max-min by its definition: nobody can get more unless somebody who has no more gets less.

    *activities* are (loads, holds), dicts from resource to fraction; *lost* is what outages take of a resource.
    """
    lost = lost or {}
    free = defaultdict(lambda: 1.0)
    for _, holds in activities:
        for r, amount in holds.items():
            free[r] -= amount
    rates, growing = [0.0] * len(activities), set(range(len(activities)))
    while growing:
        room = {}
        for r in {r for k in growing for r, x in activities[k][0].items() if x > 0}:
            taken = sum(a[0].get(r, 0.0) * rates[k] for k, a in enumerate(activities) if k not in growing)
            wanted = sum(activities[k][0].get(r, 0.0) for k in growing)
            room[r] = max(0.0, max(free[r], FLOOR) - lost.get(r, 0.0) - taken) / wanted
        level = min([1.0, *room.values()])
        full = {r for r, x in room.items() if x <= level + CLOSE}
        stopped = {k for k in growing if level >= 1.0 or any(activities[k][0].get(r, 0.0) > 0 for r in full)}
        for k in stopped:
            rates[k] = level
        growing -= stopped
    return rates


class Running:
    """An activity: what it takes, seconds left at full speed, what to do at its end."""

    def __init__(self, seconds, loads, holds, now, done):
        self.left, self.loads, self.holds, self.start, self.done = seconds, loads, holds, now, done


class Oracle:
    def __init__(self, system):
        self.system, self.now = system, 0.0
        self.todo = {
            (rank, name): [(i, t.microbatch) for t in tasks for i in t.template.instructions]
            for rank in range(system.ranks)
            for name, tasks in system.programs[int(system.program_of[rank])].chains.items()
        }
        self.at = dict.fromkeys(self.todo, 0)
        self.busy = set()  # chains in the middle of an instruction
        self.spans = defaultdict(list)
        self.fired, self.turns, self.meetings, self.running = set(), defaultdict(int), defaultdict(list), []
        self.uses = {}
        for name, c in system.communicators.items():
            for operation, p in c.patterns.items():
                columns = (p.use_group, p.use_resource, p.use_amount, p.use_hold)
                for g, r, amount, hold in zip(*(column.tolist() for column in columns), strict=True):
                    both = self.uses.setdefault((name, operation, g), ({}, {}))
                    both[hold][r] = both[hold].get(r, 0.0) + amount

    def run(self):
        """(rank, chain) -> list of [name, microbatch, posted, start, end]; None if it deadlocks."""
        while True:
            while sum(self.move(chain) for chain in self.todo):
                pass
            if not self.running:
                break
            lost, change = self.outages()
            rates = fair_rates([(a.loads, a.holds) for a in self.running], lost)
            ends = [a.left / rate for a, rate in zip(self.running, rates, strict=True) if rate > 0]
            step = min([*ends, change - self.now])
            self.now = change if step == change - self.now else self.now + step
            over = []
            for a, rate in zip(self.running, rates, strict=True):
                a.left -= rate * step
                if rate > 0 and a.left <= rate * step * CLOSE + CLOSE:
                    over.append(a)
            self.running = [a for a in self.running if a not in over]
            for a in over:
                a.done(a)
        finished = all(self.at[chain] == len(self.todo[chain]) for chain in self.todo)
        return dict(self.spans) if finished else None

    def outages(self):
        """What is lost of resources now, and when that changes next."""
        times = sorted({time for o in self.system.outages for time in (o.since, o.until) if time > self.now})
        lost = {o.resource: o.lost for o in self.system.outages if o.since <= self.now < o.until}
        return lost, times[0] if times else float("inf")

    def move(self, chain):
        """Go on with one instruction, if no time has to pass first."""
        if chain in self.busy or self.at[chain] == len(self.todo[chain]):
            return False
        i, m = self.todo[chain][self.at[chain]]
        if isinstance(i, Wait):
            if (chain[0], i.event, m if i.microbatch is None else i.microbatch) not in self.fired:
                return False
        elif isinstance(i, Signal):
            self.fired.add((chain[0], i.event, m if i.microbatch is None else i.microbatch))
        elif isinstance(i, Kernel):
            self.kernel(chain, i, m)
        elif isinstance(i, Meet):
            self.meet(chain, i, m)
        else:
            assert isinstance(i, Send)
            self.send(chain, i, m)
        if chain not in self.busy:
            self.at[chain] += 1
        return True

    def over(self, chain):
        self.busy.remove(chain)
        self.at[chain] += 1

    def kernel(self, chain, i, m):
        s, rank = self.system, chain[0]
        loads = {r: share for r, share in ((int(s.sm[rank]), i.sm), (int(s.hbm[rank]), i.hbm)) if r >= 0 and share > 0}

        def done(a):
            self.spans[chain].append([i.name, m, a.start, a.start, self.now])
            self.over(chain)

        self.busy.add(chain)
        self.running.append(Running(i.seconds * float(s.slow[rank]), loads, {}, self.now, done))

    def communicate(self, name, operation, group, nbytes, exposed, done):
        seconds, share = self.system.communicators[name].patterns[operation].seconds(group, nbytes)
        loads, holds = self.uses.get((name, operation, group), ({}, {}))
        loads = {r: amount * share for r, amount in loads.items()}
        self.running.append(Running(seconds * exposed, loads, holds, self.now, done))

    def meet(self, chain, i, m):
        of = self.system.communicators[i.communicator].group_of[0]
        group, turn = int(of[chain[0]]), self.turns[chain[0], i.communicator]
        self.turns[chain[0], i.communicator] += 1
        self.busy.add(chain)
        posted = self.meetings[i.communicator, group, turn]
        posted.append((chain, i.name, m, self.now))

        def done(a):
            for chain, name, m, at in posted:
                self.spans[chain].append([name, m, at, a.start, self.now])
                self.over(chain)

        if len(posted) == int((of == group).sum()):
            self.communicate(i.communicator, i.operation, group, i.nbytes, i.exposed, done)

    def send(self, chain, i, m):
        c = self.system.communicators[i.communicator]
        group = int(c.group_of[0][chain[0]])
        (receiver,) = (c.group_of[1] == group).nonzero()[0].tolist()
        row = [i.name, m, self.now, self.now, None]
        self.spans[chain[0], i.communicator.chain].append(row)

        def done(_):
            row[4] = self.now
            self.fired.add((receiver, i.event, m))
            if i.blocking:
                self.over(chain)

        if i.blocking:
            self.busy.add(chain)
        (operation,) = c.patterns
        self.communicate(i.communicator, operation, group, i.nbytes, 1.0, done)


def simulate(system):
    """The spans of every chain of every rank, or None for a deadlock."""
    return Oracle(system).run()
