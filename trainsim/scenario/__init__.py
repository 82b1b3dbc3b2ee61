"""What to simulate, as a person writes it: read, checked, and resolved into a job."""
