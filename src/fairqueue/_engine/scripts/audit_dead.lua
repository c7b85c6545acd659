-- audit_dead: a page of a tenant's dead letters: each is a dead message.
-- ARGV schema now:int cursor fix:int of
-- FLAGS allow-oom
-- REPLY next cursor, how many, findings of (check, subject, evidence)
-- @include transition
-- @include audit

local held = other_type(k.dead(of), 'zset')
if held then
  found('KEEP', 'dead' .. US .. of, 'the dead letters key holds a ' .. held .. ', not a zset')
  return { '0', 1, findings }
end
local page = call('ZSCAN', k.dead(of), cursor, 'COUNT', 200)
for i = 1, #page[2], 2 do
  local mid = of .. US .. page[2][i]
  local h = unpack_header(call('HGET', k.head, mid))
  if not h or h.state ~= 'x' then
    found('KEEP', mid, 'the dead letters list a message that is not dead')
    if fix == 1 then call('ZREM', k.dead(of), page[2][i]) end
  end
end
if not is_name(of) then found('KEEP', of, 'dead letters are listed under a name that no tenant has') end
if fix == 1 and call('EXISTS', k.dead(of)) == 0 then call('SREM', k.dead_tenants, of) end
return { page[1], #page[2] / 2, findings }
