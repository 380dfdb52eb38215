"""Commands of the terminal: a file per family, imported when one of its commands is used.

lifecycle   `up`, `down`, `load-scripts`, `demo`             demo        output of `demo`
runs        `submit`, `runs`, `watch`, `result`, `cancel`    waiting     `queue`, `explain`, `leases`, `history`
federation  `tenants`, `meshes`, `webhooks`                  stopping    `suspend`, `resume`
draining    `drain mesh`, `drain tenant`, `undrain`          applying    `apply`
checking    `validate`                                       joining     `join`
dead        `dead`, `audit`                                  deploying   `init`, `serve-config`, `prepare`
replaying   `replay`                                         drawing     `graph`, `timeline`
logs        `logs`                                           programs    `run`
cached      `cache`                                          schedules   `schedule`
deleting    `delete`                                         keys        `keys`
top         `top`                                            versions    `version`
doctor      `doctor`                                         codes       `code`
reports     `usage`, `changes`
"""
