"""Shapes of HTTP responses and small requests, one file per resource. `/docs` shows them.

    runs     with stages              nodes    of a run           events        of runs              results  of a run
    tenants  with their quota         meshes   and their pools    leases        held now             history  of leases
    queues   waiting work             plans    dry runs           explanations  why work waits       stops    of tenants
    audits   of the stores            health   of a gateway       dead_letters  failed for good      errors   error bodies
    cached   values of nodes          schedules  of runs
    view     shared by all            quantities  amounts     logs         of a run             graphs   and timelines of runs
    moments  times                    callers  holders of keys    api_keys      as admins see them

Times are RFC 3339 text in JSON, null if a thing has not happened (`moments`). A quantity has two forms: exact ledger units for
programs, and text for people.
"""
