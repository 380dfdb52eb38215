"""Cases that others made, run against the quota core: `python -m federation.conformance quota FILE.json`.

__main__     the command: reads, runs, tells which pass
judging      a file's text to a verdict on each case
quota_cases  what the core makes of a case
fields       keys of a stranger's JSON, read strictly
"""
