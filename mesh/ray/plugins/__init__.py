"""A user's own scores and orders: loaded, hosted, and kept within limits.

plugin_host     scoring, order and preemption plugins of one mesh
plugin_loading  plugins from packages, modules, WebAssembly files
wasm            WebAssembly plugins in a sandbox with limits
"""
