"""The root mesh as it runs on Ray Serve; `serve_apps.root_process` deploys it.

gateway        its HTTP face: all routes, and the layers around them
deployments    gateways and the coordinator as deployments, neither of which keeps state
serve          Ray Serve on the root's cluster: started, and given back
proxy_answers  what Serve's proxy says while no gateway stands behind it
"""
