"""Explaining: what can be said about a stage that waits, or would: its place, why, what would have to change, when, at whose cost.

pieces           what is asked about                 answers        what is said of it
flavor_reach     which flavors it could take         run_times      how long stages run
precedence       who comes before whom               queue_places   places among those that can be in each other's way
asked_scheduler  what the quota tree says            mesh_waits     how long the queue of its mesh takes
own_stops        whom its mesh would stop for it     foreseeing     the choice that its mesh would make
planner_asks     whom the planner would ask          plan_promises  what it has promised, and who gives that
outlook          all of it, on one snapshot
"""
