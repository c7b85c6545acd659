-- audit_clean: with no message left, which keys that should be gone are there. With fix they are removed.
-- ARGV schema now:int fix:int
-- ROWS kind
-- FLAGS allow-oom
-- REPLY (key, evidence) for each
-- @include begin

local remains, found = {}, {}
for at = ROWS_AT, #ARGV do remains[ARGV[at]] = true end
if call('HLEN', k.head) > 0 then return found end
for kind, name in pairs(k) do
  if type(name) == 'string' and not remains[kind] and call('EXISTS', name) == 1 then
    found[#found + 1] = { kind, 'no message is left, but the key is there: ' .. call('TYPE', name).ok }
    if fix == 1 then call('UNLINK', name) end
  end
end
return found
