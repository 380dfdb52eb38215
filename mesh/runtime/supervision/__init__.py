"""The local scheduler on a real Ray cluster: the supervisor, its agents, placement groups, journal, and the facade.

The facade, and what a user holds:

    schedule_mesh        the face of a mesh towards Python programs      mesh_calls        its name, and the way to its supervisor
    task_calls           calls about tasks, and who gives way to whom    pool_calls        calls about pools and their groups
    job_calls            calls about jobs                                agent_calls       calls about agents and nodes
    collective_calls     calls of many agents together                   figure_calls      calls about how the mesh does
    checked_calls        wrong arguments, told before anything is done   user_words        resources, classes and jobs, read into values
    task_handle          a submitted task in its owner's hands           job_handle        a submitted job in its owner's hands
    large_values         what an entry method returned, for its caller   charts            figures as pictures, or for the terminal

Calls on many agents:

    actor_group          agents with ranks: `.all`, `.choose`, `.shard`  collective        one call that becomes one on each
    group_call           such a call, under way                          chosen            calls that go straight to one agent each
    in_flight            what makes a choice better than a guess         queue_probe       how long calls wait before they begin
    shared_arguments     large ones, stored once for all                 resharding_tasks  n parts to m, from worker to worker

The supervisor:

    supervisor           one detached actor that decides for a mesh      supervised_mesh   its parts: put together, started, ended
    supervisor_options   what it is started with                         supervisor_link   a client's way to it, and to the next one
    ray_supervisor_door  an agent's way to it                            control_loop      events in; decisions written, carried out
    untold_news          news told in order, and again if refused        driver            decisions carried out on Ray
    driver_works         what it must know of a task, as a port          job_desk          jobs between controller and scheduler
    job_rounds           members that wait are placed together           plugin_host       who scores, who orders, who is to give way
    argument_places      where a task's arguments lie                    feedback          settings that follow the figures
    autoscaling          what waits for room, told to Ray

What lives in Ray:

    ray_names            what things are called, to be found again       agent_door        agent processes: started, ended, heard of
    crew                 which process has which task                    standbys          idle processes, where a group holds the room
    group_door           placement groups: made, taken away, counted     node_watch        nodes, as differences
    cluster_watch        a look each second; changes become events

An agent:

    agent                the actor that hosts one task's object          agent_context     what a task's own code may ask and tell
    agent_orders         what it is ordered, and what it answers         hosted_task       one attempt: made, run, ended
    hosted_calls         which calls begin, run, or see it give way      turns             under one name one after the other
    loop_thread          an event loop for `async def` methods           bounded_call      a user's function, waited for so long only
    state_keeping        state kept when a task gives way                set_variables     environment variables, set for a while
    leftovers            threads and processes that code left behind     telling           reports to the supervisor, in nobody's way
    told_errors          a user's exception, as words and as bytes

What is kept:

    state_folder         all that a mesh must not lose                   journal_file      a snapshot, and the lines since
    archive              scheduler, orders and jobs over its own death   order_book        what was ordered, folded from events
    recovery             the journal against what lives in Ray           auditing          do all ledgers agree, and with Ray
    snapshot_store       kept state, in memory and in files              work_store        what tasks run and returned: a folder each
    works                the same, and what of it is alive in Ray        work_digest       whether two submissions are the same work
    pickled_code         classes and arguments, unread on their way

What it answers and shows:

    answers              frozen values for people and programs           task_answers      about tasks, from submission to result
    pool_answers         about pools and their slots                     group_answers     about groups, with an agent or without
    job_answers          about jobs, by the desk                         agent_answers     about agents and nodes; hears agents too
    views                state as people see it: reads only              observing         figures, news, alarms, traces; and the tuner
    telemetry            told to Prometheus, traces and the log          agent_errors      what a caller of an agent can meet
    supervision_errors   what can be wrong with an order
"""
