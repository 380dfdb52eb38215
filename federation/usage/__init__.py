"""Use of the federation by tenant, user, flavor and day, from the claims of the ledger.

records      what the ledger reports, what is kept: values, and the port of their store
accounting   intervals of use, split over days and users, and use beyond the own quota; pure
report       rows by day, tenant, user or flavor; pure
keeper       carries the ledger's reports into the rows, as the elected coordinator
"""
