"""Production code in virtual time, on one thread: tests move the clock, and a seed draws the faults.

world       a federation: root, planner and children, on stores in memory
mesh_world  one mesh: its scheduler, on simulated nodes and agents
"""
