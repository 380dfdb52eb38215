"""The root mesh on Ray Serve; `serve_apps.root_process` deploys it.

gateway        the HTTP application: all routes and middleware
deployments    gateways and the coordinator as deployments, both stateless
serve          Ray Serve on the root's cluster: start and shutdown
http_server    the server in a gateway replica, at the root's port
standby        the stand-in at that port while no gateway listens
proxy_responses  responses of Serve's proxy while no gateway runs
webhook_sender  calls to other services when runs end
serve_build    applications that a Serve config file imports
"""
