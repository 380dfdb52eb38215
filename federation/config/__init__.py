"""The federation file: YAML text in, validated configuration or all its problems out. This folder reads no files.

yaml_source  text to values that know their line      shape          unknown keys and wrong types
models       the model of the whole file              sections       models of its parts, key by key
checks       checks across keys                       tenant_paths   tenants of both forms, with their paths
trust        tenants and root on a shared cluster     loading        all steps, and conversion to the federation's values
quota_rules  the file's tenants to forest, settings and rules
capacity_warnings  quota, pools and nodes that do not go together
"""
