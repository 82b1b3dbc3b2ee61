"""
Studies: many runs of one scenario and its changes. ``ts.sweep``, ``ts.compare``, ``ts.explain`` and ``ts.what_fits``.

All are made of trials (``trial``), which one runner carries out (``runner``). The changes that ``explain`` and
``what_fits`` try are the files of ``ways``.
"""
