"""Cases of other projects, run against the quota core: `python -m federation.conformance quota FILE.json`.

__main__     the command: read and run cases, report which pass
quota_case_runner  the text of a file to a verdict on each case
quota_cases  runs of cases with the core
fields       strict reader of JSON objects
"""
