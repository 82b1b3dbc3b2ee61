"""
Pictures of a sweep. ``sweep_map`` shows every point by its axes: bars or a line for one, heat maps for more;
``pareto`` shows speed against memory.
"""
