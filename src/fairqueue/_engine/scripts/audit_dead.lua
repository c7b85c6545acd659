-- audit_dead: a page of a tenant's dead letters: each is a dead message.
-- ARGV schema now:int cursor fix:int of
-- FLAGS allow-oom
-- REPLY next cursor, how many, findings of (check, subject, evidence)
-- @include transition
-- @include audit

local held, page = other_type(k.dead(of), 'zset'), { '0', {} }
if held then
  found('KEEP', 'dead' .. US .. of, 'the dead letters key holds a ' .. held .. ', not a zset')
  if fix == 1 then
    to_be_rebuilt() -- first: letters that are on no list are found by their headers alone
    call('UNLINK', k.dead(of))
  end
else
  page = call('ZSCAN', k.dead(of), cursor, 'COUNT', 200)
end

-- One whose header cannot be read stays listed: whoever walks over the headers sees to it.
for i = 1, #page[2], 2 do
  local mid = of .. US .. page[2][i]
  local text = call('HGET', k.head, mid)
  local h = unpack_header(text)
  if not h or h.state ~= 'x' then
    found('KEEP', mid, 'the dead letters list a message that is not dead')
    if fix == 1 and not text then drop_remains(mid) end
    if fix == 1 and (h or not text) then call('ZREM', k.dead(of), page[2][i]) end
  end
end
if not is_name(of) then found('KEEP', of, 'dead letters are listed under a name that no tenant has') end
if fix == 1 and call('EXISTS', k.dead(of)) == 0 then call('SREM', k.dead_tenants, of) end
return { page[1], #page[2] / 2, findings }
