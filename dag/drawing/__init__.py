"""Pictures of graphs and runs as text: SVG, Mermaid, and lines for a terminal. Pure.

picture   nodes by level, in groups if there are many      timeline  when nodes or stages ran, by mesh
svg       SVG of a picture and of a timeline               text      Mermaid and plain text of both
"""
