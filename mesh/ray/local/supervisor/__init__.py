"""The supervisor of a local mesh: events in; decisions journaled, then carried out on Ray.

The loop:

    supervised_mesh     the parts of a mesh, wired; their start and end
    supervisor_options  its start options
    control_loop        events in; decisions journaled, carried out
    event_retry_queue   ordered retry of refused events
    recovery            the journal reconciled with Ray
    auditing            consistency of all ledgers, and with Ray

Carrying out:

    driver             carries decisions out on Ray
    agent_assignments  assignment of tasks to processes
    idle_processes     processes that wait for their owner's next task
    standbys           idle processes that take placed tasks
    keyed_locks        one lock per key

Jobs:

    job_reconciler  reconciles jobs with the scheduler
    job_rounds      joint placement of waiting job members

Ray:

    agent_client            agent processes: start, end, end events
    placement_group_client  placement groups: create, remove, count
    node_watch              nodes, as differences
    cluster_watch           a look each second; changes become events
    autoscaling             pending demand, reported to Ray's autoscaler

Observability:

    views      state as people see it: reads only
    observing  metrics, events, alarms, traces; the tuner
    feedback   settings tuned by metrics
    telemetry  export to Prometheus, traces and the log
"""
