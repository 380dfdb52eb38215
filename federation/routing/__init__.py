"""Routing: which mesh gets a piece of work. A snapshot in; a mesh, or a named reason for each that refuses, out. Pure.

    demand    what the work asks for             openness       is a mesh open to it at all
    survey    what every mesh says to it         headroom       what its tenant could be granted, and at whose cost
    verdicts  what one mesh says                 work_before    what comes before it there
    route     which one is taken                 flavor_choice  which flavor, where several would do
    domains   which tenants could meet there

Source: ADR 0021, 0026, 0032.
"""
