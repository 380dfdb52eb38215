"""A mesh on Ray: stages of the federation run by a tenant's own workers. The local mesh, which needs no federation, is in `supervision`.

The host of a mesh:

    host           warm runners, and room that leases pay for              bound_runner     whose a runner is, what it has yet to hear
    placement      room in Ray, kept for the next of its shape             group_keeper     an actor, so that this room outlives its host
    node_cache     what Ray last told, asked without waiting               detached_actors  actors that are found again, and ended
    cancellations  when those asked to stop are killed

The runner of a tenant:

    runner         the actor that owns its tasks and values                engine           one thread: decides, submits, listens, tells
    open_stage     what a stage has submitted and not ended                functions        the tenant's code, sent to a worker once
    execution      what happens on a worker                                watch            few reports one by one, many together
    outcomes       why a task did not return, in our words                 run_values       what it holds for runs, and what Ray lost
    exporting      values out of a mesh, and in again                      outbox           what it has to tell, until that is confirmed
    connection     what ray.init() and ray.shutdown() do in a worker

A node's watchdog:

    watchdog       stops work whose leases nobody proves                   node_guards      an actor per node that keeps it informed
    watch_folder   a file per worker, where it finds them

Folders:

    cluster        Ray clusters of one's own                               supervision      the local mesh: supervisor, agents, facade
    user_code      what a task's code creates, how it is interrupted

Beside them:

    plugin_loading  from packages, modules, WebAssembly files              tracing          spans that are told after the fact
    wasm            strangers' code that reaches nothing, holds up nothing
"""
