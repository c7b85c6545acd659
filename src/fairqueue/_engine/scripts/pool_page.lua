-- pool_page: one page of the tenants of a pool: what of their ready work is blocked and how old the oldest
-- is; nothing is written. cursor is "r<n>" within the ring or "b<n>" within the blocked tenants.
-- ARGV schema now:int pool cursor
-- FLAGS no-writes,allow-oom
-- REPLY next cursor or '', messages blocked, instant of the oldest next message or -1
-- @include begin
-- @include names
-- @include header
-- @include look

local kind, inner = string.match(cursor, '^(%l)(%d+)$')
local blocked, oldest, following = 0, nil

if kind == 'r' then
  local page = call('ZSCAN', k.ring('p' .. US .. pool), inner, 'COUNT', 100)
  for i = 1, #page[2], 2 do
    for _, name in ipairs(call('ZRANGE', k.ring('t' .. US .. pool .. US .. page[2][i]), 0, 99)) do
      local _, at = look_at(name)
      oldest = older(oldest, at)
    end
  end
  following = page[1] == '0' and 'b0' or 'r' .. page[1]
else
  local page = call('SSCAN', k.blocked(pool), inner, 'COUNT', 100)
  for _, tenant in ipairs(page[2]) do
    for _, name in ipairs(call('HKEYS', k.parked(pool .. US .. tenant))) do
      local size, at = look_at(name)
      blocked, oldest = blocked + size, older(oldest, at)
    end
  end
  following = page[1] == '0' and '' or 'b' .. page[1]
end
return { following, blocked, oldest and int(oldest) or '-1' }
