"""Planning: which lease shall grow and which shall shrink, over all meshes at once.

values      input and output of the planner                 board       leases and their sums in a round
tournament  order among claims that want to borrow          borrowers   order among leases that may be reclaimed
reclaiming  choice of victims, and how much each gives      planner     one round
reading     holdings and wants of a snapshot                planner_loop  loop: read the ledger, plan, apply
history     past use between rounds
"""
