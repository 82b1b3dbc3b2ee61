"""A trace as a table of spans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from trainsim.contracts.trace import Trace

if TYPE_CHECKING:
    from pandas import DataFrame


def timeline(trace: Trace, ranks: Sequence[int]) -> DataFrame:
    """Columns rank, stream, name, kind, microbatch, layer, start, end (seconds), by rank and start.

    ``layer`` and ``microbatch`` are -1 where a span belongs to none.
    """
    from pandas import Categorical, DataFrame, Index, concat

    labels = trace.labels
    words = {key: [getattr(label, key) for label in labels] for key in ("stream", "name", "kind")}
    layer = np.array([label.layer for label in labels], np.int64)
    coded = {key: np.unique(np.array(values, object), return_inverse=True) for key, values in words.items()}
    frames = []
    for rank in ranks:
        for chain in trace.chain_names(rank):
            spans = trace.spans(rank, chain)
            columns: dict[str, Any] = {"rank": np.full(len(spans.label), rank)}
            columns |= {
                key: Categorical.from_codes(codes[spans.label].tolist(), categories=Index(names))
                for key, (names, codes) in coded.items()
            }
            columns |= {
                "microbatch": spans.microbatch,
                "layer": layer[spans.label],
                "start": spans.start,
                "end": spans.end,
            }
            frames.append(DataFrame(columns))
    table = concat(frames, ignore_index=True)
    return table.sort_values(["rank", "start"], kind="stable", ignore_index=True)
