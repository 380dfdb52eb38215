"""Tools for whoever changes this project.

words           private words in names and prose
pictures        the pictures of docs/pictures, drawn from recorded views
page_pictures   those of the browser page, drawn by Chromium
"""
