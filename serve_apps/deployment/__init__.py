"""Files that deploy a federation by the means of others: Ray Serve, KubeRay, systemd. Pure, and without secrets.

serve_file  Serve's config file      kuberay  a `RayService`
systemd     units of root and meshes
"""
