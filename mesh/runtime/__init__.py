"""A mesh on Ray: a tenant's own workers run stages of the federation. The local mesh, which needs no federation, is in `supervision`.

The host of a mesh:

    host           warm runners, and placement groups paid for by leases   bound_runner     state that the host keeps about one runner
    placement      placement groups, kept for reuse by shape               group_keeper     actor that owns the groups, so they outlive
    the host
    node_cache     latest node list from Ray, without waiting              detached_actors  creation, discovery and removal of detached
    actors
    cancellations  timers that kill cancelled stages

The runner of a tenant:

    runner         actor that owns the tenant's tasks and values           engine           one thread: decides, submits, reports
    open_stage     submitted tasks of a stage that has not ended           functions        the tenant's code, sent to a worker once
    execution      execution of a task on a worker                         watch            reports awaited one by one or in bulk
    outcomes       reason for which a task did not return                  run_values       values held for runs, and values that Ray lost
    exporting      values out of a mesh, and into another                  outbox           messages, kept until they are confirmed
    connection     `ray.init()` and `ray.shutdown()` in a worker

The watchdog of a node:

    watchdog       stops work whose leases are no longer renewed           node_guards      actor per node that passes renewals on
    watch_folder   file per worker, through which the watchdog finds it

Folders:

    cluster        Ray clusters that this project starts                   supervision      the local mesh: supervisor, agents, facade
    user_code      Ray resources that a task's code creates, interrupts

Beside them:

    plugin_loading  from packages, modules, WebAssembly files              tracing          spans made from records after the fact
    wasm            plugins in a sandbox with limits
"""
