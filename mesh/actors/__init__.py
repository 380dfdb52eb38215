"""Actor groups: agents with ranks and named dimensions; whom a call reaches, how arguments split, how results join. Pure."""
