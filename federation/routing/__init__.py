"""Routing: the choice of a mesh for work. A snapshot in; a mesh, or a named reason for each that refuses, out. Pure.

    routing_request  needs of the work                  mesh_filters   whether a mesh is open to the work at all
    survey           the verdicts of all meshes         headroom       grantable quota of a tenant, and its cost
    verdicts         the verdict of one mesh            queued_work    work that comes before it on a mesh
    route            the choice of the mesh             flavor_choice  the choice among flavors
    domains          tenants that could meet on a Ray cluster

Source: ADR 0021, 0026, 0032.
"""
