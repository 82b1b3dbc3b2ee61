"""One file for each format of other tools."""
