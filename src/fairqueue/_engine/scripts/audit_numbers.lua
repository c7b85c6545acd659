-- audit_numbers: pages of what must hold numbers: the counters, the limits, the virtual times. cursor is "<kind><n>".
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
  local declared = not is_pair(name) and declared_default(name)
  if is_limit(value) and (is_pair(name) or declared == value) then return end
  found('SLOTS', 'limits' .. US .. name, 'the value is no limit, or not the one declared: ' .. value)
  if fix == 0 then return end
  if declared then call('HSET', k.limits, name, declared) else call('HDEL', k.limits, name) end
end

function look.v(scope, value)
  if tag_in(value) and string.find(scope, '^[ptg]\31.') then return end
  found('MOVES', 'vtime' .. US .. scope, 'the virtual time is no number that turns are taken by: ' .. value)
  if fix == 1 then call('HDEL', k.vtime, scope) end -- taken from who is next
end

local KINDS = { 'c', 't', 'p', 'l', 'v' }
local KEYS_OF = { c = k.counters, t = k.totals, p = k.present, l = k.limits, v = k.vtime }
local kind, inner = place_in(KINDS, cursor)
local page = call('HSCAN', KEYS_OF[kind], inner, 'COUNT', 200)
for i = 1, #page[2], 2 do look[kind](page[2][i], page[2][i + 1]) end

return { step_after(KINDS, kind, page[1]), #page[2] / 2, findings }
