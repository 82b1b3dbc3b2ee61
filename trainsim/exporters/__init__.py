"""
A scenario as files of other tools: what they have a word for, and a reason for everything that they have not.

Every format is one file in ``formats/``, found through the registry.
"""
