"""The agent: a Ray actor that hosts the object of one task, runs its calls and reports.

The actor:

    agent          the actor that hosts one task's object
    hosted_task    one attempt: build, run, stop
    hosted_calls   calls on a task's object
    state_capture  state saved at a stop, and restored

User code at arm's length:

    bounded_call         a user's function with a timeout
    loop_thread          an event loop for `async def` methods
    stray_threads        stray threads and processes of user code
    error_serialization  a user's exception, as text and as bytes
    agent_errors         errors of calls to an agent

Reports:

    report_sender  background reports to the supervisor
"""
