"""`dag/1`, the form in which a graph is sent: as JSON, or as columns from Python.

spec           a checked graph: read, kept, compared            plans        nodes as the run machine and routing see them
document       `dag/1` as JSON, as pydantic models              columns      `dag/1` as columns in msgpack
column_checks  checks of columns from untrusted clients
options      options of a node beside its arguments             graph        dependencies, order and circles of a graph
forms        names in argument forms; parameters filled in      checks       checks of a spec as a whole
retry_options  errors that are retried, waits, time limits     run_labels   labels by which people find runs
arrays       arrays as parts, which are nodes               array_forms  arrays in a spec: problems, elements, parts
control      nodes of control flow, which the root does     control_graph  what control flow means for the nodes of a graph
cache_keys   keys of cached nodes, and the nodes that have one
growth       nodes that functions return, added to a graph   branch_heads  nodes that only branches need; circles of conds
group_forms  actor groups in a spec: problems, methods
job_forms    jobs in a spec: problems, gang                 call_names   names of functions, methods and variables
strict_json  reads JSON strictly, with all problems             json_places  line and column of each part of a JSON text
"""
