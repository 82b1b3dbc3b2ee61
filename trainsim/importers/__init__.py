"""
Files of other tools as scenarios: what each key becomes, what has no effect, what would have one and is not modelled.

Every format is one file in ``formats/``, found through the registry. Nothing of a file is ever executed.
"""
