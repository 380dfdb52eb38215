"""Processes: what those of the root and of child meshes are made of, whoever starts them.

process    logs, readiness by one line, an orderly end    settings  what each is told at its start: one file
stores     its ports, built from its settings
ray_entry  the way into its Ray cluster                   ray_access  with the token that a cluster may ask for
"""
