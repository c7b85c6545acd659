-- audit_dead: a page of a tenant's dead letters: each is a dead message. A walk that mends ends what a script that was
-- cut had left in doubt, unless another one was cut meanwhile.
-- ARGV schema now:int cursor fix:int of
-- FLAGS allow-oom
-- REPLY next cursor, how many, findings of (check, subject, evidence)
-- @include transition
-- @include audit

local WALKED = 2 ^ 40 -- more than scripts count
if fix == 1 and cursor == '0' and call('HEXISTS', k.doubtful, of) == 1 then call('HSET', k.doubtful, of, WALKED) end

local held = other_type(k.dead(of), 'zset')
if held then
  found('KEEP', 'dead' .. US .. of, 'the dead letters key holds a ' .. held .. ', not a zset')
  return { '0', 1, findings }
end
local page = call('ZSCAN', k.dead(of), cursor, 'COUNT', 200)
for i = 1, #page[2], 2 do
  local mid = of .. US .. page[2][i]
  local text = call('HGET', k.head, mid)
  local h = unpack_header(text)
  if not h or h.state ~= 'x' then
    found('KEEP', mid, 'the dead letters list a message that is not dead')
    if fix == 1 then
      if not text then
        drop_body(mid)
        call('HDEL', k.notes, mid)
      end
      call('ZREM', k.dead(of), page[2][i])
    end
  end
end
if not is_name(of) then found('KEEP', of, 'dead letters are listed under a name that no tenant has') end
if fix == 1 and call('EXISTS', k.dead(of)) == 0 then call('SREM', k.dead_tenants, of) end
if fix == 1 and page[1] == '0' and tonumber(call('HGET', k.doubtful, of)) == WALKED then
  call('HDEL', k.doubtful, of)
end
return { page[1], #page[2] / 2, findings }
