"""Stages of the federation on Ray: the host of a mesh, the runner of a tenant, the watchdog of a node.

The host of a mesh:

    host             warm runners, and placement groups paid for by leases
    bound_runner     state that the host keeps about one runner
    detached_actors  creation, discovery and removal of detached actors
    cancellations    timers that kill cancelled stages
    stage_groups     placement groups of stages, asked for on a thread of their own
    actor_calls      answers of calls on actors

The runner of a tenant:

    runner      actor that owns the tenant's tasks and values
    engine      one thread: decides, submits, reports
    open_stage  slots and submitted tasks of a stage that has not ended
    run_time_limits  when tasks are stopped that run for too long
    held_groups  placement groups of stages, until the host has them back
    ray_thread  calls in Ray's I/O thread, where a cancellation is safe
    chunk_feed  chunks of tasks to workers, and their reports
    worker_pool  worker actors, by placement group
    load_failures  functions that workers could not load
    worker_pages  what a dead worker ran; requests to stop
    functions   Ray tasks of their own: the tenant's code, sent to a process once
    checkpoints  the newest checkpoint of each node, and its rate of reports
    watch       reports awaited one by one or in bulk
    outcomes    reason for which a task did not return
    kept_values  small values of finished nodes, for the runner after this one
    run_values  values held for runs, and values that Ray lost
    outbox      messages, kept until they are confirmed

The watchdog of a node:

    watchdog      stops work whose leases are no longer renewed
    node_guards   actor per node that passes renewals on
"""
