-- audit_numbers: pages of what must hold numbers: the counters, the limits, the guarantees, the weights, the
-- backlogs, the virtual times. A cursor is "<kind><n>"; `of` is 'undeclared' where the declarations of limits cannot be
-- read.
-- ARGV schema now:int cursor fix:int of
-- FLAGS allow-oom
-- REPLY next cursor, how many, findings of (check, subject, evidence)
-- @include transition
-- @include audit
-- @include walks

local look = {}

-- One that gives out numbers goes on from the clock, ahead of all it gave out, as scripts let it.
function look.c(name, value)
  local number = count_in(value)
  if number and number >= 0 and number < SEQS then return end
  found('CLEAN', 'counters' .. US .. name, 'the counter is no number that can be given out: ' .. value)
  if fix == 1 then call('HSET', k.counters, name, int(now)) end
end

-- With fix the field goes: it counts from 0, and what the messages tell of it is counted again.
local function check_count(key, subject, name, value)
  if count_in(value) then return end
  found('CLEAN', subject, 'counter ' .. name .. ' is no number: ' .. value)
  if fix == 1 then call('HDEL', key, name) end
end

function look.t(name, value) check_count(k.totals, 'totals', name, value) end

function look.p(tenant, value)
  check_count(k.present, 'present' .. US .. tenant, tenant, value)
  if not sound(k.tenant(tenant), 'hash', tenant) then return end
  local counters = call('HGETALL', k.tenant(tenant))
  for i = 1, #counters, 2 do check_count(k.tenant(tenant), tenant, counters[i], counters[i + 1]) end
end

-- A group's own limit goes, a declared default is written again.
function look.l(name, value)
  -- where nobody can read what is declared no default is at odds with it: taken away, it would lift the limits of all
  if of == 'undeclared' and not is_pair(name) and is_limit(value) then return end
  local declared = not is_pair(name) and declared_default(name)
  if is_limit(value) and (is_pair(name) or declared == value) then return end
  found('SLOTS', 'limits' .. US .. name, 'the value is no limit, or not the one declared: ' .. value)
  if fix == 0 then return end
  if declared then call('HSET', k.limits, name, declared) else call('HDEL', k.limits, name) end
end

function look.b(tenant, value)
  local number = count_in(value)
  if number and number >= 0 then return end
  found('CLEAN', 'backlogs' .. US .. tenant, 'the value is no number of messages: ' .. value)
  if fix == 1 then call('HDEL', k.backlogs, tenant) end
end

-- Which rate it was nothing tells: it stays until it is set again, and nothing of the group starts.
function look.r(group, value)
  if is_pair(group) and rates.read(value) then return end
  found('SLOTS', 'rates' .. US .. group, 'the value is no rate, so nothing of the group starts: ' .. value)
end

-- One that lies too far ahead heals when it is met.
function look.a(group, value)
  if string.find(value, '^%d+\31%d+$') and rates.of(group) then return end
  found('SLOTS', 'arrivals' .. US .. group, 'there is no rate whose tokens can have been taken until then: ' .. value)
  if fix == 1 then call('HDEL', k.arrivals, group) end
end

function look.v(scope, value)
  if tag_in(value) and string.find(scope, '^[ptg]\31.') then return end
  found('MOVES', 'vtime' .. US .. scope, 'the virtual time is no number that turns are taken by: ' .. value)
  if fix == 1 then call('HDEL', k.vtime, scope) end -- taken from who is next
end

-- One that is none counts as 1 meanwhile.
function look.w(tenant, value)
  if weights.read(value) and is_name(tenant) then return end
  found('MOVES', 'weights' .. US .. tenant, 'the value is no weight: ' .. value)
  if fix == 1 then call('HDEL', k.weights, tenant) end
end

-- A tenant that holds less than it is guaranteed is among those who go first wherever it takes turns.
function look.g(tenant, value)
  local number = count_in(value)
  if not is_name(tenant) or not number or number < 0 then
    found('SLOTS', 'guarantees' .. US .. tenant, 'the guarantee is no number of slots: ' .. value)
    if fix == 1 then call('HDEL', k.guarantees, tenant) end
    return
  end
  for scope in pairs(guarantees.scopes_of(tenant)) do
    local below, ring = k.below(scope), k.ring(scope)
    local readable = sound(below, 'zset', tenant) and sound(ring, 'zset', tenant)
    local missing = readable and call('ZSCORE', ring, tenant) and not call('ZSCORE', below, tenant)
    if missing and guarantees.is_below(scope, tenant) then
      found('MOVES', tenant, 'the tenant holds less than it is guaranteed but does not go first: ' .. scope)
      if fix == 1 then guarantees.again(scope, tenant) end
    end
  end
end

local KINDS = { 'c', 't', 'p', 'l', 'g', 'w', 'b', 'r', 'a', 'v' }
local KEYS_OF = {
  c = k.counters, t = k.totals, p = k.present, l = k.limits, g = k.guarantees, w = k.weights, b = k.backlogs,
  r = k.rates, a = k.arrivals,
  v = k.vtime,
}
local kind, inner = place_in(KINDS, cursor)
if kind == 'g' then guarantees.look() end
local skipped = kind == 'g' and not guarantees.any -- none, or a key of another type, which is named as such
local page = skipped and { '0', {} } or call('HSCAN', KEYS_OF[kind], inner, 'COUNT', 200)
for i = 1, #page[2], 2 do look[kind](page[2][i], page[2][i + 1]) end

return { step_after(KINDS, kind, page[1]), #page[2] / 2, findings }
