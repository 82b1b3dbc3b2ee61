"""How quick the program is, measured against the targets that were set for it."""
