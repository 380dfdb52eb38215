"""Cases of other projects, run against the quota core: `python -m federation.conformance quota FILE.json`.

__main__     the command: read and run cases, report which pass
fields       strict reader of JSON objects

Cases on the quota core alone:

quota_case_runner  the text of a file to a verdict on each case
quota_cases  runs of cases with the core

Cases on a ledger, child meshes and a planner, with `--as deployed`:

deployed_case_runner  results, compared in the words of the running system
known_differences     differences between Kueue and the running system, and the cases that show them
deployed_cases        a case as tree, meshes, policies and stages
deployed_runs         runs of cases on a federation
deployed_federation   ledger, child meshes, planner and simulated hosts in virtual time
case_stores           empty stores for one case, in memory or on Redis
"""
