"""
The layout that trains fastest on a machine: which layouts there are, which of them cannot be best, and what the others
take when they are run.

``space`` lists layouts, ``bounding`` gives each a time and a memory that it needs at least, ``search`` runs those that
could still be the best, ``plan`` says what came of it.
"""
