"""What a run gives: numbers, pictures, files, and differences between two runs."""
