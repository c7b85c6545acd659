-- lock: takes (or prolongs) the lock of a maintenance duty; ttl 0 gives it back.
-- ARGV schema now:int duty owner ttl:int
-- FLAGS allow-oom
-- REPLY 1 if it is ours
-- @include begin

local key = k.lock(duty)
local holder = call('GET', key)
if holder and holder ~= owner then return 0 end
if ttl == 0 then
  call('DEL', key)
else
  call('SET', key, owner, 'PX', int(ttl))
end
return 1
