"""Parts of every process of the root and of child meshes.

process    logs, the ready line, an orderly end           settings  one settings file per process
stores     ports of a process, built from its settings
ray_entry  connection to its Ray cluster                  ray_access  the cluster's token
"""
