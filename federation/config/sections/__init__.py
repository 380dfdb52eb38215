"""What may stand in a federation file, key by key: a section for each key, a file for each kind of thing that sections describe."""
