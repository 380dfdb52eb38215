-- needs: session
-- Checks that every verb of a session makes first: the same ledger, the same epoch, the current session.
--
-- The epoch is checked before anything else. A call that was sent before the ledger lost writes, and is executed later,
-- could renew or claim what has been granted to another mesh meanwhile.
--
-- ARGV[1]   uid of the ledger
-- ARGV[2]   epoch
-- ARGV[3]   mesh
-- ARGV[4]   incarnation
-- ARGV[5]   the mark: the highest version that the mesh has seen
-- Reply     {'TREE', uid} | {'SKEW'} | {'EPOCH', uid, epoch, ms of recovery left}

local MESH, INCARNATION, SEEN = ARGV[3], ARGV[4], tonumber(ARGV[5])

if ARGV[1] ~= UID then
  return { 'TREE', UID }
end
local known = math.max(SEEN, tonumber(INCARNATION))
if is_from_the_future(known) then
  return { 'SKEW' }
end
recover_from(known)
if ARGV[2] ~= EPOCH then
  return { 'EPOCH', UID, EPOCH, text(recovery_left()) }
end
local SESSION = session_of(MESH)
local MARK, GROWS = unpack(redis.call('HMGET', MARKS, MESH, MESH .. '|grow')) -- GROWS: a plan lets some of its leases grow.
MARK_BEFORE = tonumber(MARK or '0')
