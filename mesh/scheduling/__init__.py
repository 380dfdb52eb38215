"""The local scheduler's core: queue, order, admit, place, preempt. Events in, decisions out; no Ray, no clock, no chance."""
