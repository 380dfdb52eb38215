"""The federation file: on disk, in its own words, and held against the federation that runs. `federation.config` checks what it says.

config_file      the door to it               dispatch_rules  its `dispatch` section, for the graph layer
applied_changes  what `apply` would change    file_words      rules and settings in its words
"""
