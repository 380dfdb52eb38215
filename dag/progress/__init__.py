"""Progress of a run: nodes that are named alike as one figure, and bars of them, and when it ends. Pure.

groups    nodes of a name, with their number by state     bars      groups as lines of text
estimate  when a run ends, by what is left of it
"""
