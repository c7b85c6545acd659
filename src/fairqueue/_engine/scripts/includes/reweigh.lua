-- Another weight for a tenant. What it was charged already lies in the distance of its tags from virtual time: that is
-- rescaled wherever it has one, or a tenant would pay for what it got by its old weight at the rate of the new one, a
-- hundred times too long or not at all.
-- @include charged
-- SHARES reweigh
local function float(number) return string.format('%.17g', number) end

local function distance_times(factor, scope, tag)
  local time = clock(scope)
  local to = time + (tag - time) * factor
  if policy.in_rounds and string.sub(scope, 1, 1) == 'p' then to = math.floor(to) end
  return float(to)
end

-- By "drr" a pool's tags are rounds, and what was charged lies in deficits, too.
local function deficits_times(factor, tenant)
  for _, pool in ipairs(policy.in_rounds and call('SMEMBERS', k.pools) or {}) do
    local deficit = tag_in(call('ZSCORE', k.deficits(pool), tenant))
    if deficit then call('ZADD', k.deficits(pool), float(deficit * factor), tenant) end
  end
end

-- The tenant's tag in a scope, where it takes turns or where it left with one; true if it has one.
local function tags_of(tenant, scope, factor, tags)
  for _, key in ipairs({ k.ring(scope), k.tags(scope) }) do
    local tag = tag_in(call('ZSCORE', key, tenant))
    if tag then
      tags[#tags + 1] = { key, distance_times(factor, scope, tag) }
      return true
    end
  end
end

-- Promises that were made to its lanes: what each charged, and the turn it is of.
local function promise_times(factor, scope, text)
  local count, charge, since, number = string.match(text, '^(%d+)\31([^\31]+)\31([^\31]*)\31(%d+)$')
  if count then
    local first_turn = tag_in(since) and distance_times(factor, scope, tag_in(since)) or since
    return table.concat({ count, float((tag_in(charge) or 0) * factor), first_turn, number }, US)
  end
  local charged, turn = string.match(text, '^([^\31]+)\31([^\31]+)$')
  if tag_in(charged) and tag_in(turn) then
    return float(tag_in(charged) * factor) .. US .. distance_times(factor, scope, tag_in(turn))
  end
end

local function promises_of(tenant, scope, factor, promises)
  local woken, own = k.woken(string.match(scope, '^g\31(.*)$')), tenant .. US
  for _, field in ipairs(call('HKEYS', woken)) do
    local rescaled = string.sub(field, 1, #own) == own and promise_times(factor, scope, call('HGET', woken, field))
    if rescaled then promises[#promises + 1] = { woken, field, rescaled } end
  end
end

-- The groups that the tenant's lanes in a pool wait at or were promised slots of.
local MOST_LANES = 200

local function groups_of(pool, tenant)
  local groups, of = { ['tenant' .. US .. tenant] = true }, pool .. US .. tenant
  for _, group in ipairs(call('HVALS', k.parked(of))) do groups[group] = true end
  for _, name in ipairs(call('ZRANGE', k.ring('t' .. US .. of), 0, MOST_LANES - 1)) do
    for _, group in ipairs(lane_of(name).groups) do groups[group] = true end
  end
  return groups
end

-- The scopes that are named, and those that the tenant has come to since. A scope where anybody was charged has a
-- virtual time.
local function scopes_of(tenant, named)
  local scopes, seen = {}, {}
  local function add(scope)
    local known = seen[scope] or not charged.kind_of(scope, tenant)
    seen[scope] = true
    if not known and call('HEXISTS', k.vtime, scope) == 1 then scopes[#scopes + 1] = scope end
  end
  for _, scope in ipairs(named) do add(scope) end
  for _, pool in ipairs(call('SMEMBERS', k.pools)) do
    add('p' .. US .. pool)
    for group in pairs(groups_of(pool, tenant)) do add(group_scope(pool, group)) end
  end
  return scopes
end

-- All is read before anything is written: what holds another type shows then, and between the writes nothing can refuse
-- them.
local function reweigh(tenant, weight, named)
  local factor, tags, promises = weights.of(tenant) / weight, {}, {}
  local scopes = factor ~= 1 and not policy.by_seq and scopes_of(tenant, named) or {}
  for _, scope in ipairs(scopes) do
    local is_charged = tags_of(tenant, scope, factor, tags)
    if is_charged and charged.kind_of(scope, tenant) == 'g' then promises_of(tenant, scope, factor, promises) end
  end
  if weight == 1 then call('HDEL', k.weights, tenant) else call('HSET', k.weights, tenant, float(weight)) end
  for _, one in ipairs(tags) do call('ZADD', one[1], one[2], tenant) end
  for _, one in ipairs(promises) do call('HSET', unpack(one)) end
  if factor ~= 1 then deficits_times(factor, tenant) end
  for _, scope in ipairs(scopes) do guarantees.again(scope, tenant) end
end
