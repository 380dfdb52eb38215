"""Nodes for tasks, and placement groups kept for reuse. Pure: no ledger of tasks, no order among them.

Nodes:

    feasibility  feasible and available nodes, with reasons
    candidates   nodes scored for one shape
    two_pass     both passes for one demand

Placement groups:

    bundle_ledger  parts of a gang's bundles that its code takes
    groups         one group: layer, holder, shapes it serves
    group_ledger   all groups of all pools
    idle_index     idle groups by fit and by age
"""
