"""
What would make a step shorter, found out by running it: ``ts.explain(scenario)``.

``losses`` says where the time goes that the mean rank does not compute, ``options`` what each change would save: a
layer elsewhere, a resource twice as fast, another schedule, more microbatches.
"""
