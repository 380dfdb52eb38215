"""Requests: what holds for every one of them, whatever it asks.

dependencies      the ports that all is answered from           accepted_runs  taken in here of late, should the store lose it
auth              a key in, who asks or a named denial out      access         who asks, and how far the key reaches
front_desk        how often whoever has a key may ask           limits         bytes of a body, calls in a second
known_parameters  what a route does not know is refused         errors         what is told when something goes wrong
observing         each has an id, is counted, and is answered     described      OpenAPI: each refusal that can come, the link's bodies
slow_clients      how long a client may take to send its request
"""
