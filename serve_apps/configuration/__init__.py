"""The federation file: reading it, and comparing it with the running federation. `federation.config` validates it.

config_file      reads the file               dispatch_rules  its `dispatch` section, for the graph layer
config_diff      what `apply` would change    config_format   rules and settings in the file's words
initial_config   the file for this machine    root_settings   settings of the root's process
root_arguments   arguments and secrets of a root in Ray Serve
"""
