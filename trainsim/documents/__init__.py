"""
Files that people write: read with the line of every value, checked key by key, found by name, by path or in place.
"""
