"""Production code in virtual time, on one thread: the clock is moved by hand, and faults are drawn from a seed.

world       a federation: root, planner and children, on stores in memory
mesh_world  one mesh: its scheduler, on made-up nodes and agents
"""
