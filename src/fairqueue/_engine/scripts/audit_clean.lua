-- audit_clean: with no message left, which keys that should be gone are there; nothing is written.
-- ARGV schema now:int
-- ROWS kind
-- FLAGS no-writes,allow-oom
-- REPLY (key, evidence) for each
-- @include begin

local remains, found = {}, {}
for at = ROWS_AT, #ARGV do remains[ARGV[at]] = true end
if call('HLEN', k.head) > 0 then return found end
for kind, name in pairs(k) do
  if type(name) == 'string' and not remains[kind] and call('EXISTS', name) == 1 then
    found[#found + 1] = { kind, 'no message is left, but the key is there: ' .. call('TYPE', name).ok }
  end
end
return found
