-- pool_lanes: a page of the lanes of a pool, those that take turns and those that wait; nothing is written. cursor is
-- "r<n>" within the ring or "b<n>" within the blocked tenants.
-- ARGV schema now:int pool cursor
-- FLAGS no-writes,allow-oom
-- REPLY next cursor or '', lanes
-- @include begin

local kind, inner = string.match(cursor, '^(%l)(%d+)$')
local lanes = {}
local function add(names)
  for _, name in ipairs(names) do
    if string.match(name, '^[^\31]+\31[^\31]+\31[^\31]+') then lanes[#lanes + 1] = name end
  end
end

local page = { '0', {} }
if kind == 'r' then
  local reply = try('ZSCAN', k.ring('p' .. US .. pool), inner, 'COUNT', 50)
  if not failed(reply) then page = reply end
  for i = 1, #page[2], 2 do
    local names = try('ZRANGE', k.ring('t' .. US .. pool .. US .. page[2][i]), 0, -1)
    if not failed(names) then add(names) end
  end
else
  local reply = try('SSCAN', k.blocked(pool), inner, 'COUNT', 50)
  if not failed(reply) then page = reply end
  for _, tenant in ipairs(page[2]) do
    local names = try('HKEYS', k.parked(pool .. US .. tenant))
    if not failed(names) then add(names) end
  end
end

local following = kind .. page[1]
if page[1] == '0' then following = kind == 'r' and 'b0' or '' end
return { following, lanes }
