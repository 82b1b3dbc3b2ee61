"""Tools for whoever changes the code: run by hand, not by pytest."""
