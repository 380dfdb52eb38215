"""What a tenant's code meets on a worker beside its arguments, and what it leaves on the Ray cluster.

interrupts   a cancelled call inside `time.sleep` is interrupted as well
"""
