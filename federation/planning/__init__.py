"""Planning: which lease shall grow, which shall shrink, over all meshes at once.

values      what the planner reads and says                     board       leases and what they come to in a round
tournament  who is next when all want what may be borrowed      reclaiming  who gives way
planner     one round
"""
