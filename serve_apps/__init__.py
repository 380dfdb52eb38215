"""What of the federation can be reached and started: HTTP, terminal, processes. Each room has a map in its `__init__.py`.

A room imports none that stands above it here:

    cli             the terminal's commands
    one_machine     a whole federation on one machine: what `up` starts, watches and stops
    root            the root mesh as it runs on Ray Serve: the gateway, and the coordinator beside it
    routes          the paths of `/v1`: what may be asked, and of whom
    answers         what a route does or finds out, beside HTTP: the terminal does some of it by itself
    link            `/v1/link`: what child meshes ask that have no key to the store
    views           records and snapshots as strangers see them
    requests        what holds for every request: ports, keys, reach, limits, errors
    configuration   the federation file: read, in its own words, compared with what runs
    processes       what every process is made of: settings, stores, the way into its Ray cluster
    telemetry       metrics, and traces of runs
    looks           what is seen of the federation at one moment, for all who ask at about the same time
    schemas         what goes over HTTP, key by key

Beside the rooms, above all but `cli`, stands what is started by name:

    root_process        deploys the root mesh on its cluster, and stays beside it
    child_process       one child mesh: a driver of its Ray cluster
    configuration_docs  writes the page about the federation file
    states_docs         writes the page about states and reasons

And what tests and benchmarks ask:

    testing             a gateway on stores in memory, without a server
    link_testing        a gateway behind a real server, and ports whose verbs go through it
"""
