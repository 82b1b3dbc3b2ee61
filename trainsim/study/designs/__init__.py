"""
Designs: which points a sweep runs. Each kind is a function in a file of its own, and designs multiply.

`grid` tries every combination, `zipped` values that go together, `listed` points one by one, `samples` a Latin
hypercube over ranges; ``where`` leaves out points for which a condition does not hold.
"""
