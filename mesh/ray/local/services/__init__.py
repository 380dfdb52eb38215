"""The supervisor's actor, and the services that answer the verbs of clients and agents (`mesh.ray.local.verbs`).

Each service gets the parts that it needs of the supervised mesh. Services inherit from nothing.

supervisor     the detached actor that decides for a mesh
task_service   tasks, from submission to result; preemption candidates
pool_service   pools and their slots
group_service  placement groups
job_service    jobs
agent_service  agents and nodes; reports of agents
mesh_service   status, settings, metrics, events and audit
"""
