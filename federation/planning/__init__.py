"""Planning: which lease shall grow and which shall shrink, over all meshes at once.

values          input and output of the planner         planning_state  leases, their work and their sums in a round
planner_inputs  holdings and demands of a snapshot      victim_search   work that stops for a claim
planner_loop    loop: read the ledger, plan, apply      planner         one round
settled_plan    a plan that changes nothing, kept
"""
