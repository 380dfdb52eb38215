"""`ScheduleMesh` in a user's program: checked calls to the supervisor, handles of what was submitted.

The facade:

    schedule_mesh     the facade of a mesh for Python programs
    task_calls        calls about tasks and preemption candidates
    pool_calls        calls about pools and their groups
    job_calls         calls about jobs
    agent_calls       calls about agents and nodes
    collective_calls  calls of many agents together
    mesh_calls        calls about status, settings, metrics, events
    supervisor_link   a client's connection; follows restarts

Arguments and results:

    checked_calls   validation of arguments before a call
    parsing         parsing of resources, classes and jobs
    payload_digest  equality of two submissions
    large_values    large results of entry methods

Handles:

    task_handle  handle of a submitted task
    job_handle   handle of a submitted job
    charts       charts of metrics, for notebook or terminal

Calls on many agents:

    actor_group       agents with ranks: `.all`, `.choose`, `.shard`
    collective        fan-out of one call to each rank
    group_call        a collective call in flight
    chosen            calls that go to one chosen agent
    in_flight         calls in flight per agent, for load balancing
    resharding_tasks  n parts to m, from worker to worker
"""
