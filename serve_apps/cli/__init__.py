"""The terminal: `schedulemesh`, a file for each family of commands, loaded when one of them is asked for.

    app         the whole of it, and what becomes of errors      commands        which command stands in which file
    lifecycle   `up`, `down`, `load-verbs`, `keys`, `demo`       demo            what `demo` shows
    runs        `submit`, `runs`, `watch`, `result`, `cancel`    waiting         `queue`, `explain`, `leases`, `story`
    federation  `tenants`, `meshes`, `drain`, `undrain`          stopping        `hold`, `drain-tenant`, `release`
    applying    `apply`                                          checking        `validate`
    dead        `dead`, `audit`                                  joining         `join`
    versions    `version`                                    __main__        `python -m serve_apps.cli`, the same

What they share:

    session     with the root: client, pictures or JSON          state           the stack of a state folder
    graph_file  `FILE.py:graph` to nodes                         spec_file       `FILE.json` to a spec
    output      how wide it may be                               told_errors     errors, for people and programs
    render      answers as pictures                              mesh_render     meshes as pictures
    stack_log   what a stack says of itself                      waiting_render  what waits, as pictures
    interrupt   what Ctrl-C does to a start
"""
