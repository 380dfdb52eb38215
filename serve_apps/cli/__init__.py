"""The `schedulemesh` command: one file per family of commands, imported when one of its commands is used.

    app         entry point, error handling and exit codes       commands        commands by file, lazy loading
    lifecycle   `up`, `down`, `load-scripts`, `keys`, `demo`     demo            output of `demo`
    runs        `submit`, `runs`, `watch`, `result`, `cancel`    waiting         `queue`, `explain`, `leases`, `history`
    federation  `tenants`, `meshes`                              stopping        `suspend`, `resume`
    draining    `drain mesh`, `drain tenant`, `undrain`
    applying    `apply`                                          checking        `validate`
    dead        `dead`, `audit`                                  joining         `join`
    versions    `version`                                        __main__        `python -m serve_apps.cli`, the same

Shared by the commands:

    session     client of the root: tables or JSON               state           the stack of a state folder
    graph_file  `FILE.py:graph` to nodes                         spec_file       `FILE.json` to a spec
    output      safe, width-aware terminal output                error_output    errors as lines and as JSON
    render      views as tables                                  mesh_render     meshes as tables
    stack_log   log of a stack                                   waiting_render  waiting work as tables
    interrupt   SIGINT and SIGTERM during a start
"""
