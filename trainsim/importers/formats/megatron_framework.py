"""
The profile of the software, and what of it the vocabulary's padding changes.
"""

from __future__ import annotations

from trainsim.importers.formats.megatron_arguments import Arguments
from trainsim.importers.formats.megatron_parallel import Degrees

MULTIPLE = 128
"""What Megatron-LM pads vocabularies to a multiple of, times tp."""


def framework(args: Arguments, degrees: Degrees, name: str, reason: str) -> None:
    """Say that the profile *name* holds, for a *reason*, with a padding of its own where one is asked for."""
    multiple = _multiple(args, degrees)
    if multiple is None or multiple == MULTIPLE:
        for key in args.given("make-vocab-size-divisible-by"):
            args.use(key, "the padding of the vocabulary, as the profile has it")
        args.assume("framework", name, reason)
        return
    args.assume("framework.base", name, reason)
    sources = args.given("make-vocab-size-divisible-by", "padded-vocab-size", "pad-vocab-size-to")
    args.say("framework.kernels.vocab_multiple", multiple, *sources, weak=True)


def _multiple(args: Arguments, degrees: Degrees) -> int | None:
    """What the vocabulary is padded to a multiple of; 1 where its size after padding is given and no multiple."""
    multiple: int | None = args.count("make-vocab-size-divisible-by")
    padded = args.count("padded-vocab-size") or args.count("pad-vocab-size-to")
    if padded and padded % ((multiple or MULTIPLE) * degrees.tp):
        return 1
    return None if padded else multiple
