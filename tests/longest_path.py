"""The plainest way to replay an order: go round the ranks until nothing changes. The oracle of the replay."""

from __future__ import annotations

from trainsim.schedules import Work


def longest_path(order, *, forward, backward, weight=0.0, p2p=0.0, overlapped=None, chain=None):
    """(Start, end) of each cell of each rank. *order* has parsed cells; *backward* is the time of B.

    I takes ``backward - weight``. Stages are chains of *chain* stages (None: one). Raises AssertionError if some cell
    can never start.
    """
    seconds = {Work.F: forward, Work.B: backward, Work.I: backward - weight, Work.W: weight}
    chain = chain or len({cell.stage for row in order for cells in row for cell in cells})
    spans = [[] for _ in order]
    done = {}  # (stage, "F" or "B", microbatch) -> (end, rank)
    changed = True
    while changed:
        changed = False
        for rank, row in enumerate(order):
            while len(spans[rank]) < len(row):
                cells = row[len(spans[rank])]
                needs = [need for cell in cells for need in _needs(cell, chain)]
                if any(need not in done for need in needs):
                    break
                inputs = [end + (p2p if source != rank else 0.0) for end, source in map(done.get, needs)]
                start = max([*inputs, spans[rank][-1][1] if spans[rank] else 0.0])
                alone = sum(seconds[cell.work] for cell in cells)
                end = start + (alone if len(cells) == 1 or overlapped is None else overlapped)
                spans[rank].append((start, end))
                done.update({key: (end, rank) for cell in cells for key in _gives(cell)})
                changed = True
    stuck = [str(row[len(span)][0]) for row, span in zip(order, spans, strict=True) if len(span) < len(row)]
    assert not stuck, f"these wait for ever: {stuck}"
    return spans


def _needs(cell, chain):
    """What must have ended on the stage before or after."""
    if cell.work is Work.F and cell.stage % chain > 0:
        yield cell.stage - 1, "F", cell.microbatch
    if cell.work in (Work.B, Work.I) and (cell.stage + 1) % chain > 0:
        yield cell.stage + 1, "B", cell.microbatch


def _gives(cell):
    """What other stages may wait for."""
    if cell.work is not Work.W:
        yield cell.stage, "F" if cell.work is Work.F else "B", cell.microbatch
