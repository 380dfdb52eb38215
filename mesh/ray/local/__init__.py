"""The local scheduler on a real Ray cluster. Imports go down: client > services > supervisor > agent, store > this folder.

Folders:

    client      `ScheduleMesh` and its handles, in a user's program
    services    the supervisor's actor; one service for each kind of verb
    supervisor  events in, decisions journaled and carried out on Ray
    agent       the actor that hosts one task's object
    store       all state of a mesh that must survive

Shared by both sides:

    verbs               the table of what clients and agents ask a supervisor
    agent_messages      orders to an agent, and its answers
    status_values       frozen values for people and programs
    supervision_errors  errors of orders to the mesh
    ray_names           names of actors and placement groups
    pickled_code        pickling of user classes and arguments
"""
