"""From work to seconds: kernels alone on a GPU, and the slowest of many."""
