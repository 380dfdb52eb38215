"""The browser page at `/`: its files, which `ui/` builds into `built`, and their headers.

page_files   the built files, in memory, with a strict content security policy
"""
