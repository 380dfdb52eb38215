"""The local scheduler on a real Ray cluster: the supervisor, its agents, placement groups, journal, and the facade.

The client side:

    schedule_mesh        the facade of a mesh for Python programs        mesh_calls        mesh name and supervisor link
    task_calls           calls about tasks and preemption candidates     pool_calls        calls about pools and their groups
    job_calls            calls about jobs                                agent_calls       calls about agents and nodes
    collective_calls     calls of many agents together                   metric_calls      calls about metrics, health and settings
    checked_calls        validation of arguments before a call           parsing           parsing of resources, classes and jobs
    task_handle          handle of a submitted task                      job_handle        handle of a submitted job
    large_values         large results of entry methods                  charts            charts of metrics, for notebook or terminal

Calls on many agents:

    actor_group          agents with ranks: `.all`, `.choose`, `.shard`  collective        fan-out of one call to each rank
    group_call           a collective call in flight                     chosen            calls that go to one chosen agent
    in_flight            calls in flight per agent, for load balancing   queue_probe       waiting time of calls on an agent
    shared_arguments     large arguments, stored once for all ranks      resharding_tasks  n parts to m, from worker to worker

The supervisor:

    supervisor           the detached actor that decides for a mesh      supervised_mesh   its parts: construction, start, end
    supervisor_options   its start options                               supervisor_link   a client's connection; follows restarts
    ray_supervisor_client  an agent's connection to the supervisor         control_loop      events in; decisions journaled, carried out
    event_retry_queue    ordered retry of refused events                 driver            carries decisions out on Ray
    driver_payloads      what the driver needs of a task, as a port      job_reconciler    reconciles jobs with the scheduler
    job_rounds           joint placement of waiting job members          plugin_host       scoring, order and preemption plugins
    argument_locations   nodes that hold a task's arguments              feedback          settings tuned by metrics
    autoscaling          pending demand, reported to Ray's autoscaler

What lives in Ray:

    ray_names            names of actors and placement groups            agent_client      agent processes: start, end, end events
    agent_assignments    assignment of tasks to processes                standbys          idle processes that take placed tasks
    placement_group_client  placement groups: create, remove, count         node_watch        nodes, as differences
    cluster_watch        a look each second; changes become events

An agent:

    agent                the actor that hosts one task's object          agent_context     API for a task's own code
    agent_messages       orders to an agent, and its answers             hosted_task       one attempt: build, run, stop
    hosted_calls         calls on a task's object                       keyed_locks       one lock per key
    loop_thread          an event loop for `async def` methods           bounded_call      a user's function with a timeout
    state_capture        state saved at a stop, and restored             env_vars          environment variables, set for a while
    stray_threads        stray threads and processes of user code        report_sender     background reports to the supervisor
    error_serialization  a user's exception, as text and as bytes

Storage:

    mesh_folder          all state of a mesh that must survive           journal_file      a snapshot, and the lines since
    archive              scheduler, orders and jobs across restarts      task_index        the index of tasks, folded from events
    recovery             the journal reconciled with Ray                 auditing          consistency of all ledgers, and with Ray
    snapshot_store       saved states, in memory and in files            payload_store     task payloads and results: a folder each
    task_payloads        task payloads with their live Ray objects       payload_digest    equality of two submissions
    pickled_code         pickling of user classes and arguments

Answers and observability:

    status_values        frozen values for people and programs           task_handlers     requests about tasks
    pool_handlers        requests about pools and their slots            group_handlers    requests about placement groups
    job_handlers         requests about jobs                             agent_handlers    requests about agents and nodes
    views                state as people see it: reads only              observing         metrics, events, alarms, traces; the tuner
    telemetry            export to Prometheus, traces and the log        agent_errors      errors of calls to an agent
    supervision_errors   errors of orders to the mesh
"""
