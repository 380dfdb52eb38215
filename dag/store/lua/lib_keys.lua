-- Keys, in the order of `scripted_keys`. All but INBOX, ACTIVE, ENDED, DEAD, OVERDUE and META are families: they end in ':'
-- and an id is appended.
local RUN, NODES, STAGES, EVENTS, BLOBS, RUNS_OF = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local INBOX, ACTIVE, ENDED = KEYS[7], KEYS[8], KEYS[9]
local STAGE, INPUTS, STAGES_OF, READY, CLAIMED = KEYS[10], KEYS[11], KEYS[12], KEYS[13], KEYS[14]
local DEAD_OF, DEAD, BACKLOG, IDEMPOTENCY = KEYS[15], KEYS[16], KEYS[17], KEYS[18]
local OVERDUE, TAKEN, META = KEYS[19], KEYS[20], KEYS[21]
