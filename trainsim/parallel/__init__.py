"""How ranks are laid on the axes of parallelism."""
