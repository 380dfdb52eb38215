-- needs: keys
-- Notifications to meshes, and messages about runs.

-- Notifications are hints, so old ones may go: a mesh that was away reads its queue and its claims.
local function post_mail(mesh, kind, subject)
  redis.call('XADD', NOTIFICATIONS .. mesh, 'MAXLEN', '~', '1000', '*', 'kind', kind, 'subject', subject)
end

-- Inbox entries are no hints: they stay until they are acknowledged. Only `contested` is about no run.
local function post_inbox(run, kind, body)
  redis.call('XADD', INBOX, '*', 'run', run, 'kind', kind, 'body', body)
end
