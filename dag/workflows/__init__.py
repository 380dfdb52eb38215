"""Workflows of other systems, as WfFormat describes them: https://wfcommons.org, schema 1.5 and 1.6.

wfformat   a file to a checked workflow            meshes    meshes to plan for, and the mesh of each task
planning   a workflow as a planning problem            trace_graph  a trace as a graph that runs
"""
