-- The keys, in the order of `Keys.scripted`. The second row are families: they end in ':' and an id is appended.
local META, TREE, SESSIONS, MESHES, INBOX = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local LEASES, STAGE, INPUTS, READY, CLAIMED, STAGES_OF, MAIL = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11], KEYS[12]
