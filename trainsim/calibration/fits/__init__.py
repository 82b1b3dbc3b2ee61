"""Fits: from measurements of one kind to constants, by robust least squares."""
