"""Several jobs on one machine at one time: what each takes alone and together, and who disturbs whom."""
