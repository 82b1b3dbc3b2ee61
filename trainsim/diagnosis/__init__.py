"""
What slowed a measured job down: its operations are replayed with durations that some of them might have had.

An operation table says when each operation of each worker started and how long it took (``operations``). What waits for
what is rebuilt (``structure``), the table is replayed as measured, in the ideal case and in between (``what_if``), and
each known cause of stragglers (``causes``) is weighed by how much shorter the step is without it.
"""
