"""Webhooks: calls to other services when runs end. Pure; `serve_apps.root.webhook_sender` makes the calls.

webhook   a webhook, its messages, and the port of the store
signing   signatures, after Standard Webhooks
delivery  what an attempt leads to: delivered, again later, or given up
"""
