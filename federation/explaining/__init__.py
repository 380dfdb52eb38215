"""Explanation of waiting work: its place, the reason, needed changes, the estimated start, and possible victims.

pending_stages   stages to explain                   forecast       the results
flavor_reach     flavors that a stage could take     run_times      run times of stages
precedence       order among stages                  queue_positions  places among stages that compete for a flavor
what_if_scheduler  the quota tree's part
tenant_preemption  victims of the own tenant           preemption_preview  preview of the preemption by a mesh
planner_preview  the leases a plan would reclaim     planned_grants  growth that a plan has decided, and its victims
forecasts        all of it, on one snapshot
"""
