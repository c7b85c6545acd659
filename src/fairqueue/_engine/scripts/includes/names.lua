-- The parts of composite names.
-- SHARES is_name is_pair tenant_of id_of limit_of_group lane_of own_lane
-- SHARES parked_key group_scope woken_key waiting_key
local function is_name(text) return text ~= '' and not string.find(text, US, 1, true) end
-- Of two names: a mid, or a group.
local function is_pair(text) return string.find(text, '^[^\31]+\31[^\31]+$') ~= nil end

-- Of a text that is no such name (somebody's hand) a part may be empty: it must not end the script that meets it.
local function tenant_of(mid) return string.match(mid, '^[^\31]*') end
local function id_of(mid) return string.match(mid, '\31(.*)$') or '' end
local function limit_of_group(group) return string.match(group, '^[^\31]*') end

-- lane -> { name, tenant, queue, pool, groups, pool scope, tenant scope }; parsed once a script.
local lane_of
do
  local lanes = {}
  function lane_of(name)
    local lane = lanes[name]
    if lane then return lane end
    local parts, at = {}, 0
    for part in string.gmatch(name, '[^\31]+') do
      at = at + 1
      parts[at] = part
    end
    local tenant, pool, groups = parts[1] or '', parts[3] or '', {}
    for i = 4, at - 1, 2 do groups[#groups + 1] = parts[i] .. US .. parts[i + 1] end
    lane = {
      name = name, tenant = tenant, queue = parts[2], pool = pool, groups = groups,
      pool_scope = 'p' .. US .. pool,
      scope = 't' .. US .. pool .. US .. tenant,
    }
    lanes[name] = lane
    return lane
  end
end

-- The lane that a tenant's index names in a pool; nil when the name is none of its own, which no script ever wrote.
local function own_lane(name, pool, tenant)
  local of, _, within = string.match(name, '^([^\31]+)\31([^\31]+)\31([^\31]+)')
  if of == tenant and within == pool then return lane_of(name) end
end

local function parked_key(lane) return k.parked(lane.pool .. US .. lane.tenant) end
local function group_scope(pool, group) return 'g' .. US .. pool .. US .. group end
local function woken_key(pool, group) return k.woken(pool .. US .. group) end
local function waiting_key(pool, group, tenant) return k.waiting(pool .. US .. group .. US .. tenant) end
