-- Pauses of a tenant, a queue, a pool, or of several of these together. A pause is a gate like a full group: a lane
-- that it stops is parked at a group named for the pause, which has no room while it stands and no limit afterwards. A
-- pause of a whole pool parks nobody: claims pass that pool over, and its turns stand still.
-- @include seldom
-- SHARES pauses
local pauses = {}

local LIMIT = '!pause' -- no limit can be declared under this name
local JOINT = '\30' -- no tenant, queue or pool has it in its name
local known -- how many pauses there are, once this script has looked

-- Of the key: '' is a selector that is not given.
function pauses.name_of(tenant, queue, pool) return tenant .. JOINT .. queue .. JOINT .. pool end

function pauses.group_of(name) return LIMIT .. US .. name end

-- The name of the pause that a group is the gate of; nil for every other group.
function pauses.named_by(group) return string.match(group, '^!pause\31(.*)$') end

-- Does the pause stand? A key that cannot be read resumes nobody.
function pauses.stands(name)
  local found = try('HEXISTS', k.pauses, name)
  return failed(found) ~= nil or found == 1
end

-- Raises, before a claim has written anything, where the pauses cannot be read: nobody could tell who may start.
function pauses.must_be_readable() known = none_is_set and 0 or call('HLEN', k.pauses) end

local function are_there()
  if not known then
    local found = none_is_set and 0 or try('HLEN', k.pauses)
    known = failed(found) and 0 or found -- a claim refuses, whatever is put into its ring
  end
  return known > 0
end

function pauses.of_pool(pool) return are_there() and pauses.stands(pauses.name_of('', '', pool)) end

local function stopped_at(lane)
  local name_of, tenant, queue, pool = pauses.name_of, lane.tenant, lane.queue or '', lane.pool
  local names = {
    name_of(tenant, '', ''), name_of('', queue, ''), name_of(tenant, queue, ''), name_of(tenant, '', pool),
    name_of('', queue, pool), name_of(tenant, queue, pool),
  }
  local found = call('HMGET', k.pauses, unpack(names))
  for i, name in ipairs(names) do
    if found[i] then return pauses.group_of(name) end
  end
  return false
end

-- The group of a pause that stops the lane, or nil; looked for once a script.
function pauses.stopping(lane)
  if not are_there() then return nil end
  if lane.stopped_at == nil then lane.stopped_at = stopped_at(lane) end
  return lane.stopped_at or nil
end
