-- Whose turn it is, among those that this claim has not passed over. What goes first by a guarantee comes before all.
-- SHARES passing
local passing = {}
local aside = {} -- passed over until the end of this script

-- The smallest tag in a scope that was not passed over. Those passed over stay in the ring, so one more than they are
-- is enough to look at.
function passing.first_in(scope)
  local member, tag = first(scope)
  local passed = aside[scope]
  if not member or not passed or not passed[member] then return member, tag end
  local top = call('ZRANGE', k.ring(scope), 0, passed[1], 'WITHSCORES')
  for i = 1, #top, 2 do
    if not passed[top[i]] then return top[i], tag_in(top[i + 1]) or clock(scope) end
  end
end

-- [1] is how many were passed over in the scope; members are texts.
function passing.over(scope, member)
  local passed = aside[scope] or { 0 }
  aside[scope] = passed
  if not passed[member] then passed[1], passed[member] = passed[1] + 1, true end
end

-- The lane is out of this script; so is its tenant when none of its lanes is left in it.
function passing.over_lane(lane)
  passing.over(lane.scope, lane.name)
  if not passing.first_in(lane.scope) then passing.over(lane.pool_scope, lane.tenant) end
end

-- The next tenant. A name that no tenant can have, put here by hand, would be met again and again: its rings and
-- lists are those of others.
function passing.first_tenant(scope)
  while true do
    local tenant, tag = guarantees.first(scope, aside[scope])
    if not tenant then tenant, tag = passing.first_in(scope) end
    if not tenant or is_name(tenant) then return tenant, tag end
    call('ZREM', k.ring(scope), tenant)
  end
end
