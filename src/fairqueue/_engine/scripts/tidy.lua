-- tidy: a page of what scripts that were cut, or hands that mended a key, may leave: lanes that had been stopped
-- and can be read again, virtual times nobody goes by, tenants without dead letters. cursor is "<kind><n>".
-- ARGV schema now:int cursor
-- FLAGS allow-oom
-- REPLY next cursor ('0' at the end), lanes that take turns again
-- @include transition

local KINDS = { 's', 'v', 'd' }
local resumed = {}
local look = {}

function look.s(name)
  local size = try('ZCARD', k.lane(name))
  if failed(size) then return end
  if size > 0 then
    local _, seq = next_in(lane_of(name))
    lane_ready(lane_of(name), seq)
    resumed[#resumed + 1] = name
  end
  call('HDEL', k.stopped, name)
end

-- A scope is still in use while somebody takes turns in it, or waits (was woken) to do so.
local function waits(scope)
  local kind, rest = string.match(scope, '^(%l)\31(.*)$')
  if kind == 'p' then return k.blocked(rest) end
  return kind == 't' and k.parked(rest) or k.woken(rest)
end

function look.v(scope)
  if call('EXISTS', k.ring(scope), waits(scope)) == 0 then stop_clock(scope) end
end

function look.d(tenant)
  if call('EXISTS', k.dead(tenant)) == 0 then call('SREM', k.dead_tenants, tenant) end
end

local kind, inner = string.match(cursor, '^(%l)(%d+)$')
if not kind then kind, inner = 's', '0' end
local page
if kind == 'd' then
  page = call('SSCAN', k.dead_tenants, inner, 'COUNT', 200)
else
  page = call('HSCAN', kind == 's' and k.stopped or k.vtime, inner, 'COUNT', 200)
end
for i = 1, #page[2], kind == 'd' and 1 or 2 do look[kind](page[2][i]) end
flush_moves()

local following = kind .. page[1]
if page[1] == '0' then
  following = '0'
  for i, name in ipairs(KINDS) do
    if name == kind and KINDS[i + 1] then following = KINDS[i + 1] .. '0' end
  end
end
return { following, resumed }
