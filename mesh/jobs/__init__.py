"""Jobs: a leader and worker sets, admitted, started, restarted and cleaned as one."""
