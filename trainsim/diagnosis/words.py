"""Workers, ratios and parts in words, as the sentences of a diagnosis say them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trainsim.diagnosis.operations import Ints

MOST_NAMED = 3


def workers_named(workers: Sequence[tuple[int, int, int]], which: Ints | Sequence[int]) -> str:
    """Some workers by their ranks.

    >>> workers_named([(0, 0, 0), (0, 0, 1), (1, 0, 0)], [1]), workers_named([(0, 0, k) for k in range(9)], range(9))
    ('DP rank 0, stage 1', '9 workers (DP rank 0, stage 0; DP rank 0, stage 1; DP rank 0, stage 2; ...)')
    """
    twins = any(lane for _, lane, _ in workers)
    names = [
        f"DP rank {workers[k][0]}" + (f" ({workers[k][1]})" if twins else "") + f", stage {workers[k][2]}"
        for k in np.asarray(which).tolist()[:MOST_NAMED]
    ]
    if len(which) == 1:
        return names[0]
    more = "; ..." if len(which) > MOST_NAMED else ""
    return f"{len(which)} workers ({'; '.join(names)}{more})"


def slower(ratio: float) -> str:
    """How many times as long.

    >>> slower(2.317), slower(1.05), slower(1862.4)
    ('2.32 times', '1.05 times', '1,862 times')
    """
    return f"{ratio:,.0f} times" if ratio >= 100 else f"{ratio:.3g} times"


def stages_named(stages: Sequence[int], last: int) -> str:
    """Some stages by their numbers.

    >>> stages_named([3], 3), stages_named([0, 1], 3)
    ('stage 3, the last', 'stages 0 and 1')
    """
    if len(stages) == 1:
        return f"stage {stages[0]}" + (", the last" if stages[0] == last and last else "")
    return f"stages {', '.join(map(str, stages[:-1]))} and {stages[-1]}"
