"""Planning: which lease shall grow, which shall shrink, over all meshes at once.

values      what the planner reads and says                     board       leases and what they come to in a round
tournament  who is next when all want what may be borrowed      borrowers   who is asked first to give back
reclaiming  who gives way, and how much                         planner     one round
reading     holdings and wants of a snapshot             seat        looks at the ledger, plans, applies
history     what was used between rounds
"""
