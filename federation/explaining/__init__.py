"""Explaining: what can be said about a stage that waits, or would: its place, why, what would have to change, when, at whose cost.

pieces           what is asked about               answers      what is said of it
flavor_reach     which flavors it could take       run_times    how long stages run
precedence       who comes before whom             mesh_waits   how long the queue of its mesh takes
queue_places     places in one such queue          foreseeing   whom a mesh would stop for a stage of the same tenant
asked_scheduler  what the quota tree says of it    own_stops    whom its own mesh would stop for it
outlook          all of it, on one snapshot        planner_asks whom the planner would ask to give way to it
"""
