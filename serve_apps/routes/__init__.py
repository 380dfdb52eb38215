"""Routes of `/v1` for tenants and operators. The routes of child meshes are in `serve_apps.link`.

runs          submit, show, follow, fetch, cancel        federation    tenants, meshes, leases; drains
dead_letters  dead letters and audits                    explanations  why work waits, dry runs, lease history; holds of tenants
cached        cached values of nodes                     schedules     run templates that start by cron
logs          what the nodes of a run have printed       signals       values for nodes that wait for them
graphs        graph, timeline and single nodes of a run, as a page draws them
listing       lists and changes of all runs, and callers  api_keys      API keys, for admins
changes       changes that people made
usage         what tenants have used, by day
"""
