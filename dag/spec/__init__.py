"""`dag/1`, the form in which a graph is sent: the same JSON for Python and for HTTP.

spec         `dag/1` as pydantic models: read, kept, compared   plans        nodes as the run machine and routing see them
options      options of a node beside its arguments             graph        dependencies, order and circles of a graph
forms        names in argument forms; parameters filled in      checks       checks of a spec as a whole
strict_json  reads JSON strictly, with all problems             json_places  line and column of each part of a JSON text
"""
