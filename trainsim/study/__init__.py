"""What many runs say together: sweeps, comparisons, explanations, what would fit."""
