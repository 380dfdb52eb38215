"""Schedules: run templates that start by cron. Pure but for `controller`, which calls the stores.

schedule    the record of a schedule, its template, and the port of the store
cron        times of a cron expression in a time zone
firing      what is due, and what becomes of it; the run of a firing
controller  starts what is due, tenant by tenant
"""
