"""Many scenarios at once: the points of a grid, on the processes of this machine, as a table."""
