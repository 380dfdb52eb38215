"""Tools for whoever changes this project: `words` looks for private words in names and prose."""
