"""How the documentation site is made: pages from code, data and scenarios, beside those of ``docs/``."""
