-- Guarantees: a tenant that holds fewer slots of its own group than it is guaranteed goes before all who do not. Beside
-- a ring (of a pool's tenants, or of those who wait at a group) stands `below`: those of its members that may be such,
-- by the same tags. Whoever goes by it looks at the slots that are held and at the tag in the ring: one that stands
-- there too long costs a look. One that is missing is put there by what lets it take turns, by each slot of it that
-- comes free and by reconcile.
-- SHARES guarantees
local guarantees = {}
local stored, known, promised = {}, {}, {}

-- How many slots are held in a group; a claim counts those in that it takes.
guarantees.held = held_in

-- Whether anybody has one is a part of the settings, which each script reads anyway.
guarantees.any = settings.guarantees

-- Is there one, by the guarantees themselves? A key of another type holds none.
function guarantees.look()
  stored, known = {}, {}
  local count = try('HLEN', k.guarantees)
  guarantees.any = not failed(count) and count > 0
end

-- What is stored of the tenant; '0' while its first one is being set. False: nothing.
function guarantees.stored(tenant)
  if not guarantees.any then return false end
  if stored[tenant] == nil then
    local text = try('HGET', k.guarantees, tenant) -- a key of another type stops nobody
    stored[tenant] = not failed(text) and text
  end
  return stored[tenant]
end

-- How many slots the tenant is guaranteed; nil: none, or no number that could be one.
function guarantees.of(tenant)
  if known[tenant] == nil then
    local number = count_in(guarantees.stored(tenant))
    known[tenant] = number and number > 0 and number
  end
  return known[tenant] or nil
end

-- The pattern of names that begin with the tenant's.
function guarantees.fields_of(tenant) return string.gsub(tenant, '[%*%?%[%]%^\\]', '\\%0') .. US .. '*' end

-- Slots of the group of this scope that the tenant's lanes were promised and have not taken: each is a field.
local function promised_at(scope, tenant)
  local woken, at = string.match(scope, '^g\31(.*)$'), scope .. US .. tenant
  if not woken then return 0 end
  if promised[at] then return promised[at] end
  local count, pattern, cursor = 0, guarantees.fields_of(tenant), '0'
  repeat
    local page = call('HSCAN', k.woken(woken), cursor, 'MATCH', pattern, 'COUNT', 1000)
    cursor, count = page[1], count + #page[2] / 2
  until cursor == '0'
  promised[at] = count
  return count
end

-- So many promises more, or less.
function guarantees.promise(scope, tenant, by)
  local at = scope .. US .. tenant
  if promised[at] then promised[at] = promised[at] + by end
end

-- How many slots the tenant lacks of its guarantee, those counted as held that it was promised in this scope; nil: it
-- has no guarantee, or nobody can tell.
function guarantees.lacks(scope, tenant)
  local guaranteed = guarantees.of(tenant)
  local held = guaranteed and guarantees.held('tenant' .. US .. tenant)
  return held and guaranteed - held - promised_at(scope, tenant)
end

function guarantees.is_below(scope, tenant) return (guarantees.lacks(scope, tenant) or 0) > 0 end

-- Is the slot that it was promised last within the tenant's guarantee?
function guarantees.covers(scope, tenant) return (guarantees.lacks(scope, tenant) or -1) >= 0 end

-- Who takes turns in a scope has come, or stands there at another tag. A tenant's own turns are those of its lanes.
function guarantees.follow(scope, tenant, tag)
  if not guarantees.any or string.sub(scope, 1, 1) == 't' then return end
  if guarantees.is_below(scope, tenant) then call('ZADD', k.below(scope), tag, tenant) end
end

-- The same for a tenant that holds or was promised less than before; nothing where it takes no turns.
function guarantees.again(scope, tenant)
  local tag = guarantees.of(tenant) and call('ZSCORE', k.ring(scope), tenant)
  if tag then guarantees.follow(scope, tenant, tag) end
end

function guarantees.leave(scope, tenant)
  if guarantees.any and string.sub(scope, 1, 1) ~= 't' then call('ZREM', k.below(scope), tenant) end
end
