"""The local scheduler on a real Ray cluster: the supervisor, its agents, placement groups, journal, and the facade."""
