"""Steps that machines have run: files of profilers and logs read as the trace that simulations give, and compared."""
