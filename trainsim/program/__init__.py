"""Planning: from a job to one program per kind of rank. Pure; no clock."""
