-- lock: takes (or prolongs) the lock of a maintenance duty; ttl 0 gives it back. One that never expires (restored, or
-- somebody's hand) is nobody's: whoever held it may be gone, and its duty would be done no more.
-- ARGV schema now:int duty owner ttl:int
-- FLAGS allow-oom
-- REPLY 1 if it is ours
-- @include begin
-- @include lease

local key = k.lock(duty)
local holder = call('GET', key)
local left = call('PTTL', key)
local in_force = left >= 0 and left <= LONGEST_MS
if holder and holder ~= owner and in_force then return 0 end
if ttl == 0 then
  call('DEL', key)
else
  call('SET', key, owner, 'PX', int(ttl))
end
return 1
