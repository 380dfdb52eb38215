"""The federation file: YAML text in; checked configuration, or everything that is wrong with it, out. Reads no file itself.

yaml_source  text to values that know their line               shape          is every key known, and of its kind
models       what may stand in a file, put together            sections       the same, key by key
checks       does it make sense as a whole                     tenant_forest  tenants in one shape, with their paths
trust        who shares a Ray cluster, and may    loading        all of it, and on to the federation's own values
"""
