-- Who goes first: which of those that a scope lists in `below`, and where a tenant is listed again.
-- SHARES nothing
local MOST_POOLS, SOME_LANES = 50, 32

-- Where the tenant takes turns with others: in its pools, and at the groups where its lanes are parked; of many lanes
-- some tell, by chance, the others when they are parked again.
function guarantees.scopes_of(tenant)
  local scopes = {}
  for _, pool in ipairs(call('SRANDMEMBER', k.pools, MOST_POOLS)) do
    scopes['p' .. US .. pool] = true
    local parked = call('HRANDFIELD', k.parked(pool .. US .. tenant), SOME_LANES, 'WITHVALUES')
    for i = 2, #parked, 2 do scopes[group_scope(pool, parked[i])] = true end
  end
  return scopes
end

-- Slots of these groups came free: tenants that hold less than their guarantee now go first again, in their pools and
-- wherever they wait, at these places before all.
function guarantees.regain(groups, places)
  if not guarantees.any then return end
  for group in pairs(groups) do
    local tenant = limit_of_group(group) == 'tenant' and id_of(group)
    if tenant and guarantees.is_below('', tenant) then
      local scopes = guarantees.scopes_of(tenant)
      for _, place in ipairs(places) do
        for _, pool in ipairs(place.pools) do scopes[group_scope(pool, place.group)] = true end
      end
      for scope in pairs(scopes) do guarantees.again(scope, tenant) end
    end
  end
end

-- The first of a scope's `below` who does lack something of its guarantee, and its tag as it stands in the ring. Those
-- `passed` over ([1] is how many) are left out.
function guarantees.candidate(scope, passed)
  if not guarantees.any then return nil end
  local function top()
    local standing = call('ZRANGE', k.below(scope), 0, passed and passed[1] or 0, 'WITHSCORES')
    for i = 1, #standing, 2 do
      if not passed or not passed[standing[i]] then return standing[i], standing[i + 1] end
    end
  end
  while true do
    local tenant, score = top()
    if not tenant then return nil end
    local tag = call('ZSCORE', k.ring(scope), tenant)
    if not tag or not guarantees.is_below(scope, tenant) then
      call('ZREM', k.below(scope), tenant)
    elseif tag ~= score then
      call('ZADD', k.below(scope), tag, tenant)
    else
      return tenant, tag
    end
  end
end

-- Of those listed in a scope the first that take no turns there: a script was cut, or could not read the guarantees.
local LISTED = 100
function guarantees.drop_strangers(scope)
  for _, tenant in ipairs(call('ZRANGE', k.below(scope), 0, LISTED - 1)) do
    if not call('ZSCORE', k.ring(scope), tenant) then call('ZREM', k.below(scope), tenant) end
  end
end

-- Who goes before all others in a scope, and by which tag; nil: nobody.
function guarantees.first(scope, passed)
  local tenant, tag = guarantees.candidate(scope, passed)
  if tenant then return tenant, tag_in(tag) or clock(scope) end
end

-- Who is next where turns are taken with others.
function guarantees.next(scope)
  local tenant, tag = guarantees.first(scope)
  if tenant then return tenant, tag end
  return first(scope)
end

-- Virtual time when a turn at that tag is taken. Who goes before the others may be far ahead of them: newcomers would
-- enter behind all that they are served until then.
function guarantees.time(scope, tenant, tag)
  if policy.by_seq or not guarantees.of(tenant) then return tag end
  local _, least = first(scope)
  return math.max(clock(scope), math.min(tag, least or tag))
end
