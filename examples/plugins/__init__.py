"""A node policy of one's own: in Python, and in WebAssembly."""
