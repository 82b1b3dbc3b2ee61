"""
Damaged copies of files of other tools, imported one by one: tells what raises anything but an error in words.

    python -m tests.tools.mutate_files FILE... [--count 10000]
"""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from time import perf_counter

from tests.importing import mutations, survives
from trainsim.importers.source import read_source

COUNT = 10_000


def damage(path: Path, count: int) -> tuple[int, float, float]:
    """(Failures, seconds on average, seconds of the slowest) of *count* damaged copies of the file at *path*."""
    source = read_source(path)
    failures, times = 0, [0.0]
    for number, text in enumerate(mutations(source.text, count, seed=len(source.text))):
        began = perf_counter()
        try:
            survives(source, text, [])
        except Exception:
            failures += 1
            if failures < 4:
                copy = Path("/tmp") / f"damaged_{number}_{path.name}"
                copy.write_text(text, encoding="utf-8", errors="surrogatepass")
                print(f"{copy}:\n{traceback.format_exc(limit=-3)}")
        times.append(perf_counter() - began)
    return failures, sum(times) / count, max(times)


def main() -> None:
    """Print a line per file."""
    words = sys.argv[1:]
    count = int(words.pop(words.index("--count") + 1)) if "--count" in words else COUNT
    for name in (word for word in words if word != "--count"):
        failures, mean, worst = damage(Path(name), count)
        print(
            f"{name}: {count} copies, {failures} failures, {1e3 * mean:.1f} ms each, the slowest {1e3 * worst:.0f} ms"
        )


if __name__ == "__main__":
    main()
