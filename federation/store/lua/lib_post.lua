-- needs: keys
-- Letters to meshes, and messages about runs.

-- Mail is a hint, so old letters may go: a mesh that was away looks at its queue and its claims.
local function post_mail(mesh, kind, subject)
  redis.call('XADD', MAIL .. mesh, 'MAXLEN', '~', '1000', '*', 'kind', kind, 'subject', subject)
end

-- The inbox is no hint: entries stay until they are acknowledged.
local function post_inbox(run, kind, body)
  redis.call('XADD', INBOX, '*', 'run', run, 'kind', kind, 'body', body)
end
