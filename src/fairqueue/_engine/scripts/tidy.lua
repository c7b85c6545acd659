-- tidy: a page of what scripts that were cut, or hands that mended a key, may leave: lanes that had been stopped
-- and can be read again, virtual times nobody goes by, tenants without dead letters. Where rings or due times are
-- missing (evicted, or deleted by hand) the sign is set that they be written again; due times that were changed by hand
-- are those of the messages again. cursor is "<kind><n>".
-- ARGV schema now:int cursor
-- FLAGS allow-oom
-- REPLY next cursor ('0' at the end), lanes that take turns again
-- @include transition
-- @include walks

local KINDS = { 's', 'v', 'd', 'g' }
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
  if other_type(k.dead(tenant), 'zset') then
    to_be_rebuilt() -- first: letters that are on no list are found by their headers alone
    call('UNLINK', k.dead(tenant))
  end
  if call('EXISTS', k.dead(tenant)) == 0 then call('SREM', k.dead_tenants, tenant) end
end

-- A script that was cut, or a hand, may have left a tenant out of those who go first.
function look.g(tenant)
  for scope in pairs(guarantees.scopes_of(tenant)) do guarantees.again(scope, tenant) end
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
    or call('ZCARD', k.delayed_names) < call('ZCARD', k.delayed)
  for _, pool in ipairs(pools) do
    local nobody = call('EXISTS', k.ring('p' .. US .. pool)) == 0
    likely = likely or nobody and ready_elsewhere(pool, ready, math.floor(LOOKED_AT / #pools), #pools == 1)
  end
  local sign = ready .. ' ' .. delayed
  if not likely or call('HGET', k.settings, 'rebuilt_at') == sign then return end
  to_be_rebuilt() -- first: it is heeded until that is done
  call('HSET', k.settings, 'rebuilt_at', sign)
end

-- A script was cut while a lane left that has no messages any more: at a pause nobody would come by it.
local function forget_empty_lanes(pool, tenant, names)
  for _, name in ipairs(names) do
    local lane = own_lane(name, pool, tenant)
    if lane and call('EXISTS', k.lane(name)) == 0 then lane_leaves(lane) end
  end
  if call('EXISTS', k.parked(pool .. US .. tenant)) == 0 then call('SREM', k.blocked(pool), tenant) end
end

-- A script was cut when it had taken a tenant's last lane off the list of those that wait. Some of a pool's tenants
-- are looked at, by chance, others next time, and a few lanes of each: by one command, as most are as they should be.
local BLOCKED, LANES = 60, 3
local function forget_who_waits_no_more(pool, tenants)
  local parked, keys = {}, {}
  for _, tenant in ipairs(tenants) do
    local names = try('HRANDFIELD', k.parked(pool .. US .. tenant), LANES)
    if not failed(names) then
      parked[tenant] = names
      for _, name in ipairs(names) do keys[#keys + 1] = k.lane(name) end
      if #names == 0 then call('SREM', k.blocked(pool), tenant) end
    end
  end
  if #keys == 0 or call('EXISTS', unpack(keys)) == #keys then return end
  for tenant, names in pairs(parked) do forget_empty_lanes(pool, tenant, names) end
end

local function look_at_who_waits()
  local pools = call('SRANDMEMBER', k.pools, POOLS)
  for _, pool in ipairs(pools) do
    forget_who_waits_no_more(pool, call('SRANDMEMBER', k.blocked(pool), math.ceil(BLOCKED / #pools)))
  end
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

-- A due time that was moved to later, or to never, would be met by no promote. Some are looked at, by chance and from
-- the end, others next time; those that were moved to earlier a promote puts back.
local DUE_TIMES = 100

local function mend_due_times()
  local mids = call('ZREVRANGE', k.delayed, 0, DUE_TIMES - 1)
  for _, mid in ipairs(call('ZRANDMEMBER', k.delayed, DUE_TIMES)) do mids[#mids + 1] = mid end
  if #mids == 0 then return end
  local heads, scores = get_many(k.head, mids), call('ZMSCORE', k.delayed, unpack(mids))
  for i, mid in ipairs(mids) do
    local h = header_of(mid, heads[i])
    local due = h and h.state == 'd' and h.moved_at or int(now) -- of no delayed message: a promote takes it out
    if tonumber(scores[i]) > tonumber(due) then call('ZADD', k.delayed, due, mid) end
  end
end

-- Scripts that were cut had listed a message by its name and not put it off, or had not struck its name yet.
local function strike_names()
  local mids = call('ZRANDMEMBER', k.delayed_names, DUE_TIMES)
  if #mids == 0 then return end
  local heads, dues, struck = get_many(k.head, mids), call('ZMSCORE', k.delayed, unpack(mids)), {}
  for i, mid in ipairs(mids) do
    local h = header_of(mid, heads[i])
    if not dues[i] and not (h and h.state == 'd') then struck[#struck + 1] = mid end
  end
  many('ZREM', k.delayed_names, struck)
end

if cursor == 's0' then
  mend_due_times()
  strike_names()
  look_at_who_waits()
  forget_idle_pools()
  if call('EXISTS', k.head) == 1 then look_for_what_is_missing() end
  guarantees.look()
  if guarantees.any and not settings.guarantees then call('HSET', k.settings, 'guarantees', '1') end
  for _, pool in ipairs(call('SRANDMEMBER', k.pools, POOLS)) do guarantees.drop_strangers('p' .. US .. pool) end
  call('SCARD', k.doubtful) -- of another type it is mended as any index is
end
local HASHES = { s = k.stopped, v = k.vtime, g = k.guarantees }
local kind, inner = place_in(KINDS, cursor)
local page
if kind == 'g' then guarantees.look() end
if kind == 'g' and not guarantees.any then
  page = { '0', {} }
elseif kind == 'd' then
  page = call('SSCAN', k.dead_tenants, inner, 'COUNT', 200)
else
  page = call('HSCAN', HASHES[kind], inner, 'COUNT', 200)
end
for i = 1, #page[2], kind == 'd' and 1 or 2 do look[kind](page[2][i]) end
flush_moves()

return { step_after(KINDS, kind, page[1]), resumed }
