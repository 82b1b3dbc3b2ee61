"""``python -m trainsim`` is the command line."""

from trainsim.cli import main

main()
