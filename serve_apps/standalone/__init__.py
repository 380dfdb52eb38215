"""A federation on one machine: its Redis, Ray clusters, root and child meshes, as `up` starts, watches and stops them.

    stack           all of it                                      managed         one process, ended by its id
    restarts        when a dead part is started again              port_claim      a port that no other stack chooses
    ledger_identity  the ledger's id and state over restarts        active_stops    drains and holds from before this start
    ledger_setup    the ledger of a federation file, for `up` and `prepare`
    own_clusters    the Ray clusters that the stack starts         tenant_replacement  a new tenant tree, and keys of removed tenants

Kept in the state folder:

    stack_folder    the folder: one owner at a time                startup_config  settings that `apply` cannot change
    default_tenant  the default tenant of clients                  child_pids      processes of each mesh
    stale_folders   folders of Ray clusters elsewhere
"""
