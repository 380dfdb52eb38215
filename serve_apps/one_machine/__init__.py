"""A federation on one machine: its Redis, Ray clusters, root and child meshes, as `up` starts, watches and stops them.

    stack           all of it                                      managed         one process of it, ended by its id
    restarts        when a part that died is started again         port_claim      a port that no other stack takes meanwhile
    ledger_keeper   who its ledger is, over restarts               left_standing   orders from before this start, told
    own_clusters    the Ray clusters that it starts itself

What is kept in its state folder, for the next start and for those who come meanwhile:

    state_folder    the folder: one owner at a time                taken_at_start  what `apply` cannot change
    client_default  whose work is whose tenant nobody names        child_marks     which processes run for which mesh
    left_folders    folders of Ray clusters elsewhere              users           whose processes these clusters are
"""
