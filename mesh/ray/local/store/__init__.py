"""State of a local mesh that survives restarts.

mesh_folder     all state of a mesh that must survive
journal_file    a snapshot, and the lines since
archive         scheduler, orders and jobs across restarts
task_index      the index of tasks, folded from events
payload_store   task payloads and results: a folder each
task_payloads   task payloads with their live Ray objects
snapshot_store  saved states of tasks, in files
"""
