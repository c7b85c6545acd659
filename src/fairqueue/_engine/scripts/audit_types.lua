-- audit_types: which keys of the namespace hold another type than they should. With fix, those that are rebuilt from
-- the messages (or by the next client) are removed; the self-check's other steps fill them again.
-- ARGV schema now:int fix:int
-- ROWS kind type rebuilt
-- FLAGS allow-oom
-- REPLY (kind, evidence) for each
-- It must run although the settings themselves cannot be read; when they can, it refuses like all others.
local stored = redis.pcall('HGET', k.settings, 'schema')
if type(stored) == 'string' and stored ~= schema then
  return redis.error_reply('FQSCHEMA stored schema ' .. stored .. ', this client speaks ' .. schema)
end

local found = {}
for at = ROWS_AT, #ARGV, ROW do
  local kind, wanted, rebuilt = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local is = redis.call('TYPE', k[kind]).ok
  if is ~= 'none' and is ~= wanted then
    found[#found + 1] = { kind, 'the key holds a ' .. is .. ', not a ' .. wanted }
    if fix == 1 and rebuilt == '1' then redis.call('UNLINK', k[kind]) end
  end
end
return found
