-- group_state: a limit group as it is now; nothing is written. Waiting messages are counted lane by lane in
-- the first 500 lanes that wait; of the others each lane of a tenant that was looked at counts as one, and each tenant.
-- ARGV schema now:int group revision
-- FLAGS no-writes,allow-oom
-- REPLY limit in force or 'none', held or nothing when the key is broken, messages waiting, holders, its rate: none, or
-- n, per, burst, tokens now, instant of the next one or -1; slots that are guaranteed
-- or 0
-- @include begin
-- @include names
-- @include bell
-- @include gates
-- @include rates
-- @include revision

local MAX_LANES = 500
must_know(revision)
local limit = limit_of(group)
local held = try('HLEN', k.slots(group))
local holders = try('HKEYS', k.slots(group))
if failed(held) or failed(holders) then held, holders = false, {} end

local left = MAX_LANES

local function ready_in(lane, pool)
  local size = try('ZCARD', k.lane(lane))
  if failed(size) then return 0 end
  local promised = call('HGET', k.woken(pool .. US .. group), lane)
  return size - (promised and tonumber(string.match(promised, '^%d+')) or 0)
end

local function waiting_in(pool)
  local ring, waiting = k.ring(group_scope(pool, group)), 0
  local tenants = left > 0 and call('ZRANGE', ring, 0, left - 1) or {}
  for _, tenant in ipairs(tenants) do
    local lanes = waiting_key(pool, group, tenant)
    local looked_at = left > 0 and call('ZRANGE', lanes, 0, left - 1) or {}
    left = left - #looked_at
    for _, lane in ipairs(looked_at) do waiting = waiting + ready_in(lane, pool) end
    waiting = waiting + call('ZCARD', lanes) - #looked_at
  end
  return waiting + call('ZCARD', ring) - #tenants
end

local waiting = 0
for _, pool in ipairs(call('SMEMBERS', k.waiters(group))) do waiting = waiting + waiting_in(pool) end

rates.must_be_readable()
local bucket, rate = rates.of(group), {}
if bucket then
  local tokens = math.min(rates.tokens(group), bucket.burst)
  local next_at = rates.instant_of(bucket, tokens + 1)
  rate = { int(bucket.n), int(bucket.per), int(bucket.burst), int(tokens), next_at and int(next_at) or '-1' }
end
local of_tenant = limit_of_group(group) == 'tenant' and try('HGET', k.guarantees, string.match(group, '\31(.*)$'))
local guaranteed = type(of_tenant) == 'string' and count_in(of_tenant) or 0
return { limit and int(limit) or 'none', held, waiting, holders, rate, math.max(0, guaranteed) }
