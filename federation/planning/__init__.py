"""Planning: which lease shall grow and which shall shrink, over all meshes at once.

values      input and output of the planner                 planning_state  leases and their sums in a round
tournament  order among claims that want to borrow          reclaim_candidates  order among leases that may be reclaimed
reclaiming  choice of victims, and how much each gives      planner     one round
planner_inputs  holdings and wants of a snapshot                planner_loop  loop: read the ledger, plan, apply
"""
