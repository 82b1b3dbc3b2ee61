"""
The table of docs/reports.md: what people reported in public, beside what is simulated.

    python -m tests.tools.reports
"""

from tests.reports import lines

if __name__ == "__main__":
    for line in lines():
        print(line, flush=True)
