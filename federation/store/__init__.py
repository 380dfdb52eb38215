"""Adapters of the ports of `federation`.

Folders:

    redis   on Redis, with one script per decision
    lua     the scripts, one file per verb
    memory  in memory, for tests and simulations

Shared by the stores:

    lease_rows     leases, demands and sessions
    tree_rows      a tenant tree
    inbox_entries  checks and messages of both stage queues
    report_parts   numbers of the parts of a large batch
    usage_rows     reports on use, and rows of days

    http_link  the child's ports over HTTP, with a mesh key
"""
