"""What goes over HTTP, key by key: here alone answers and small requests get their shape, a file for each thing. `/docs` shows it.

    runs     with stages              nodes    of a run           events        of a run             results  of a run
    tenants  and what each has        meshes   and their pools    leases        held now             stories  of leases
    queues   what waits               plans    what if            explanations  why not further      stops    of tenants
    audits   what does not agree      health   of a gateway       dead_letters  failed for good      errors   why no answer
    view     what all have in common  quantities  told twice

Times are milliseconds since the epoch, 0 where a thing has not happened. A quantity is told twice: in ledger units (exact,
for programs) and as people write it.
"""
