-- audit_clean: with no message left, which of these keys that should be gone are there. With fix they are removed, in
-- the same step, so that nothing is taken from a message that has just come.
-- ARGV schema now:int fix:int
-- ROWS name
-- FLAGS allow-oom
-- REPLY (key, evidence) for each
-- @include begin

local found = {}
if call('HLEN', k.head) > 0 then return found end
for at = ROWS_AT, #ARGV do
  local name = root .. ARGV[at]
  local is = call('TYPE', name).ok
  if is ~= 'none' then
    found[#found + 1] = { ARGV[at], 'no message is left, but the key is there: ' .. is }
    if fix == 1 then call('UNLINK', name) end
  end
end
return found
