"""What goes over HTTP, key by key: here alone answers and small requests get their shape, a file for each thing. `/docs` shows it.

Times are milliseconds since the epoch, 0 where a thing has not happened. A quantity is told twice: in ledger units (exact,
for programs) and as people write it.
"""
