"""Puts rehearsed stretches into the compiled tasks of compute, wherever nobody outside can disturb them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainsim.contracts.record import COMPUTE
from trainsim.engine.actor import Actor, posters
from trainsim.engine.chain import Chain
from trainsim.engine.clock import Clock
from trainsim.engine.play import Company, Play
from trainsim.engine.rehearsal import Room, Score
from trainsim.engine.snippet import Snippet
from trainsim.engine.stretches import Stretch

OFTEN = 2  # a stretch that comes less often is not worth a rehearsal


class Weaver:
    """Weaves the stretches of all classes."""

    def __init__(self, clock: Clock, room: Room, actors: Sequence[Actor], chains: Sequence[dict[str, Chain]]):
        self.clock, self.room, self.actors, self.chains = clock, room, actors, chains
        self._members = posters(actors)

    def weave(self, program: int, stretches: Sequence[Stretch]) -> None:
        """Put what *stretches* come to into the chains of all classes that run *program*."""
        actors = [actor for actor in self.actors if actor.program_number == program]
        for stretch in stretches:
            if len(stretch.first) >= OFTEN:
                snippets = {a.number: Snippet(self.room, a, stretch, self.chains[a.number]) for a in actors}
                for company in self._companies(snippets):
                    self._play({number: snippets[number] for number in company}, stretch)

    def _companies(self, snippets: dict[int, Snippet]) -> Iterator[list[int]]:
        """The classes that go through their stretch together, where that can be."""
        of = {number: frozenset({number}).union(*(self._members[group] for group in snippet.groups))
              for number, snippet in snippets.items()}  # fmt: skip
        for company in dict.fromkeys(of.values()):
            same = all(of.get(number) == company for number in company)
            if same and all(self._fits(snippets[number], len(company)) for number in company):
                yield sorted(company)

    def _fits(self, snippet: Snippet, members: int) -> bool:
        met = all(len(self._members[group]) == members for group in snippet.groups)
        return snippet.lineup is not None and met and (members == 1 or snippet.shared)

    def _play(self, snippets: dict[int, Snippet], stretch: Stretch) -> None:
        """Let a company play a stretch, unless it cannot be rehearsed."""
        score = Score([snippet.lineup for snippet in snippets.values() if snippet.lineup is not None])
        if not self.room.can(score):
            return
        own = [self.chains[number] for number in snippets]
        names = [COMPUTE, *(name for name, _, _ in stretch.followers)]
        company = Company(self.clock, self.room, score, [[chains[name] for name in names] for chains in own])
        for member, (snippet, chains) in enumerate(zip(snippets.values(), own, strict=True)):
            tasks = chains[COMPUTE].tasks
            operations, _ = tasks[int(stretch.first[0])]
            play = Play(company, member, snippet, stretch.tasks - 1)
            woven = (*operations[: snippet.first], play, *operations[snippet.first :])
            tasks.put(woven, stretch.first)
