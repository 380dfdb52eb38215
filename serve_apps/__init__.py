"""HTTP gateway, terminal and processes of the federation. The `__init__.py` of each folder lists its files.

A folder imports only folders below it in this list:

    cli             commands of the terminal
    standalone      a whole federation on one machine: what `up` starts, watches and stops
    deployment      files for Ray Serve, KubeRay and systemd
    root            the root mesh on Ray Serve: the gateway and the coordinator
    routes          paths of `/v1`
    services        work of the routes without HTTP; the terminal uses some of it
    link            `/v1/link`: calls of child meshes without a key to the store
    views           records and snapshots to HTTP shapes
    browser         the page at `/`, which `ui/` builds
    requests        checks and limits of every request: ports, keys, reach, limits, errors
    codes           reasons and error codes: meaning, remedy, and a page for each
    configuration   the federation file: reading it, comparing it with the running federation
    processes       parts of every process: settings, stores, connection to its Ray cluster
    telemetry       metrics, and traces of runs
    snapshot_cache  snapshots of the federation that concurrent requests share
    schemas         shapes of HTTP bodies

Modules started by name, above all folders but `cli`:

    root_process        deploys the root mesh on its cluster and stays beside it
    child_process       one child mesh: a driver of its Ray cluster
    configuration_docs  writes the page about the federation file
    states_docs         writes the page about states

For tests and benchmarks:

    gateway_fixtures    a gateway on stores in memory, without a server
    link_fixtures       a gateway behind a real server, and ports whose verbs pass through it
    page_fixtures       runs in every state behind a real server, for the browser page, and Chromium
    replica_fixtures    gateways and coordinators on a real Redis, in processes of their own
"""
