"""Conversion of records and snapshots into the shapes of `serve_apps.schemas`. Pure.

runs          runs, their stages, nodes and events       federation  tenants, meshes and leases
dead_letters  dead letters and audits                    waiting     waiting work and its explanations
graphs        graphs and timelines of runs as columns  schedules   schedules and their firings
usage         what tenants have used, in hours
run_progress  how far a run is                           run_graphs  graphs of runs that were read last
"""
