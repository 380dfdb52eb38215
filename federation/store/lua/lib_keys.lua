-- The keys, in the order of `Keys.scripted`. Those from the third row on, but OVERDUE, are families: they end in ':' and an id is
-- appended.
local META, TREE, SESSIONS, MESHES, INBOX = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local DUE, CUTS, MARKS, WANTING, PLAN, LOG = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local LEASES, WANTS, STAGE, INPUTS = KEYS[12], KEYS[13], KEYS[14], KEYS[15]
local READY, CLAIMED, STAGES_OF, MAIL = KEYS[16], KEYS[17], KEYS[18], KEYS[19]
local OVERDUE, TAKEN = KEYS[20], KEYS[21]
