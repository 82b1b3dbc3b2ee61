"""How good the planner is and how quick: against every layout of a space, and against layouts that others chose."""
