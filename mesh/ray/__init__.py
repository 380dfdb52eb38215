"""A mesh on Ray. The only folder of `mesh` that opens connections, files, threads and clocks.

Folders:

    stage_runner  a tenant's own workers run stages of the federation
    local         the local mesh, which needs no federation: client, supervisor, agents, store
    cluster       Ray clusters that this project starts
    worker        processes that run the code of nodes
    programs      programs as nodes: what a worker starts and ends, and their drivers in Ray
    user_code     Ray resources that a task's code creates; interrupts
    plugins       a user's own scores and orders, loaded and hosted

Shared:

    placement   placement groups, kept for reuse by shape
    connection  `ray.init()` and `ray.shutdown()` in a worker
    tracing     spans made from records after the fact
"""
