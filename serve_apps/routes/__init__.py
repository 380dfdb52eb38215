"""Routes: the paths of `/v1` for tenants and operators. Those of child meshes stand in `serve_apps.link`.

runs          submit, look, follow, fetch, cancel        federation    tenants, meshes, leases; drains
dead_letters  what failed for good, and audits           explanations  why it waits, what if, stories; holds of tenants
"""
