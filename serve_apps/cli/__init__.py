"""The `schedulemesh` command.

    app         entry point, error handling and exit codes      command_loading  commands by file, imported on use
    commands    one file per family of commands                 __main__         `python -m serve_apps.cli`, the same

Shared by the commands:

    session     client of the root: tables or JSON              state            the stack of a state folder
    completion  names that the root knows, for the tab key
    graph_file  `FILE.py:graph` to nodes                        spec_file        `FILE.json` to a spec
    output      safe, width-aware terminal output
    render      views as tables                                 mesh_render      meshes as tables
    stack_log   log of a stack                                  waiting_render   waiting work as tables
    interrupt   SIGINT and SIGTERM during a start            workflow_file    WfFormat files, as graphs that run
    trace_task  the function of a replayed task                 top_render       one frame of `top`
    progress_render  bars of a run by the names of nodes
    diagnosis   checks of `doctor`                              machine_facts    what they judge
    server_facts  the same about Redis and Ray clusters
    recording   commands in the log of changes                  changes_render   changes as a table and as lines
    usage_render  use as a table, and for spreadsheets
"""
