"""Views: records and snapshots in, the shapes of `serve_apps.schemas` out. Pure.

runs          runs, their stages, nodes and events       federation  tenants, meshes and leases
dead_letters  what failed for good, and audits           waiting     what waits, why, and what would have to change
"""
