"""
Machines and networks that other tools describe: what their files share on the way to a topology.
"""
