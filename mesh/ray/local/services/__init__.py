"""The supervisor's actor, and the verbs that clients and agents call on it.

supervisor      the detached actor that decides for a mesh
task_handlers   requests about tasks
pool_handlers   requests about pools and their slots
group_handlers  requests about placement groups
job_handlers    requests about jobs
agent_handlers  requests about agents and nodes
"""
