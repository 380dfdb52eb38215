"""Explanation of waiting work: its place, the reason, needed changes, the estimated start, and possible victims.

pending_stages   stages to explain                   answers        the results
flavor_reach     flavors that a stage could take     run_times      run times of stages
precedence       order among stages                  queue_places   places among stages that compete for a flavor
asked_scheduler  the quota tree's part               mesh_waits     the wait in the queue of the mesh
own_stops        victims of the own tenant           foreseeing     preview of the preemption by a mesh
planner_asks     the leases a plan would reclaim     plan_promises  growth that a plan has promised, and its givers
outlook          all of it, on one snapshot
"""
