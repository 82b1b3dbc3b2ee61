"""What HolisticTraceAnalysis says of a folder of traces, as JSON: ``python -P tests/tools/hta.py FOLDER``.

It needs nothing of this package, so that it can run where another set of libraries is installed.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import warnings
from typing import Any


def told(folder: str) -> dict[str, Any]:
    """Tables of HolisticTraceAnalysis as lists of rows: times in microseconds, not rounded to whole ones."""
    os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"
    warnings.filterwarnings("ignore")
    from hta.trace_analysis import TraceAnalysis

    logging.disable(logging.CRITICAL)
    analysis: Any = TraceAnalysis(trace_dir=folder, include_last_profiler_step=True)
    ranks = sorted(analysis.t.traces)
    by_type, by_name = analysis.get_gpu_kernel_breakdown(
        visualize=False, num_kernels=1000, duration_ratio=1.0, include_memory_kernels=True
    )
    idle, _ = analysis.get_idle_time_breakdown(ranks=ranks, visualize=False, consecutive_kernel_delay=0)
    tables = {
        "temporal": analysis.get_temporal_breakdown(visualize=False),
        "overlap": analysis.get_comm_comp_overlap(visualize=False),
        "types": by_type,
        "names": by_name,
        "idle": idle,
    }
    return {name: json.loads(table.to_json(orient="records")) for name, table in tables.items()}


if __name__ == "__main__":
    print(json.dumps(told(sys.argv[1])))
