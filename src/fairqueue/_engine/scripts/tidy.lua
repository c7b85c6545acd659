-- tidy: a page of what scripts that were cut, or hands that mended a key, may leave: lanes that had been stopped
-- and can be read again, virtual times nobody goes by, tenants without dead letters. Where rings or due times are
-- missing (evicted, or deleted by hand) the sign is set that they be written again. cursor is "<kind><n>".
-- ARGV schema now:int cursor
-- FLAGS allow-oom
-- REPLY next cursor ('0' at the end), lanes that take turns again
-- @include transition
-- @include walks

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
  if not kind then return k.ring(scope) end -- no scope at all
  return kind == 't' and k.parked(rest) or k.woken(rest)
end

function look.v(scope)
  if call('EXISTS', k.ring(scope), waits(scope)) == 0 then stop_clock(scope) end
end

function look.d(tenant)
  if failed(try('ZCARD', k.dead(tenant))) then letters_in_doubt(tenant) end
  if call('EXISTS', k.dead(tenant)) == 0 then call('SREM', k.dead_tenants, tenant) end
end

-- A pool in which nobody takes turns: do all that are ready wait? Looked at with a few tenants in some of the pools,
-- others next time; more are trusted, and so are the counts where other pools have a share in them.
local POOLS, LOOKED_AT = 20, 200

local function ready_elsewhere(pool, ready, most, alone)
  local blocked = call('SRANDMEMBER', k.blocked(pool), most)
  for _, tenant in ipairs(blocked) do
    if call('EXISTS', k.ring('t' .. US .. pool .. US .. tenant)) == 1 then return true end
    ready = ready - (tonumber(call('HGET', k.tenant(tenant), 'r')) or 0)
  end
  return alone and #blocked < most and ready > 0
end

-- Signs that cost little to look at. A counter that is behind gives a false one: the same sign is heeded once.
local function look_for_what_is_missing()
  local pools, gauges = call('SRANDMEMBER', k.pools, POOLS), call('HMGET', k.totals, 'r', 'd')
  local ready, delayed = tonumber(gauges[1]) or 0, tonumber(gauges[2]) or 0
  local likely = #pools == 0 and ready > 0 or delayed > 0 and call('EXISTS', k.delayed) == 0
  for _, pool in ipairs(pools) do
    local nobody = call('EXISTS', k.ring('p' .. US .. pool)) == 0
    likely = likely or nobody and ready_elsewhere(pool, ready, math.floor(LOOKED_AT / #pools), #pools == 1)
  end
  local sign = ready .. ' ' .. delayed
  if not likely or call('HGET', k.settings, 'rebuilt_at') == sign then return end
  to_be_rebuilt() -- first: it is heeded until that is done
  call('HSET', k.settings, 'rebuilt_at', sign)
end

-- A script was cut when the last one had left the pool. With nothing ready anywhere no ring can be missing there.
local function forget_idle_pools()
  if (tonumber(call('HGET', k.totals, 'r')) or 0) > 0 then return end
  for _, pool in ipairs(call('SRANDMEMBER', k.pools, POOLS)) do
    if call('EXISTS', k.ring('p' .. US .. pool), k.blocked(pool)) == 0 then
      stop_clock('p' .. US .. pool)
      call('SREM', k.pools, pool)
    end
  end
end

if cursor == 's0' then
  forget_idle_pools()
  if call('EXISTS', k.head) == 1 then look_for_what_is_missing() end
  call('SCARD', k.doubtful) -- of another type it is mended as any index is
end
local kind, inner = place_in(KINDS, cursor)
local page
if kind == 'd' then
  page = call('SSCAN', k.dead_tenants, inner, 'COUNT', 200)
else
  page = call('HSCAN', kind == 's' and k.stopped or k.vtime, inner, 'COUNT', 200)
end
for i = 1, #page[2], kind == 'd' and 1 or 2 do look[kind](page[2][i]) end
flush_moves()

return { step_after(KINDS, kind, page[1]), resumed }
