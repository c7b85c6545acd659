-- Which shared groups the tenants with a guarantee use: guarantees that add up to more than such a group has could not
-- all be kept. Noted by tenant and by group when a message comes in, with the instant until which it counts.
-- SHARES uses
local uses = {}
local DAY = 86400000
local KEPT, LONGEST = 30 * DAY, 3650 * DAY
local noted = {}

-- A tenant of which it is known: all its messages have been looked at, or it had none. What comes is noted.
local KNOWN = ''
function uses.known(tenant) return call('ZSCORE', k.uses(tenant), KNOWN) end
function uses.now_known(tenant) call('ZADD', k.uses(tenant), '+inf', KNOWN) end

-- The groups that a tenant uses.
function uses.of(tenant) return call('ZRANGEBYSCORE', k.uses(tenant), '(' .. int(now), '(+inf') end

-- The key goes by itself when nothing in it counts any more.
function uses.note_user(group, tenant, till)
  local key = k.users(group)
  call('ZADD', key, 'GT', int(till), tenant)
  call('ZREMRANGEBYSCORE', key, '-inf', int(now))
  local latest = tonumber(call('ZRANGE', key, -1, -1, 'WITHSCORES')[2])
  call('PEXPIRE', key, int(math.min(latest - now, LONGEST)))
end

-- A message for these groups comes, or is due, at that instant. Noted anew once a day, and for the group first: by what
-- the tenant's own says it is there already.
function uses.note(tenant, groups, at)
  if not guarantees.stored(tenant) then return end
  local till = math.max(at, now) + KEPT
  for _, group in ipairs(groups) do
    local name = tenant .. US .. group
    if limit_of_group(group) ~= 'tenant' and not noted[name] then
      noted[name] = tonumber(call('ZSCORE', k.uses(tenant), group)) or 0
    end
    if noted[name] and noted[name] < till - DAY then
      uses.note_user(group, tenant, till)
      call('ZREMRANGEBYSCORE', k.uses(tenant), '-inf', int(now))
      call('ZADD', k.uses(tenant), int(till), group)
      noted[name] = till
    end
  end
end

-- What those who use a group are guaranteed together, where it has less: the sum. With so much for a tenant instead of
-- what it has. A group that is stopped, by a limit of 0, keeps no guarantee anyway.
function uses.beyond(group, limit, tenant, number)
  if not limit or limit == 0 then return nil end
  local users = call('ZRANGEBYSCORE', k.users(group), '(' .. int(now), '+inf')
  local sum, slots = number or 0, guarantees.any and get_many(k.guarantees, users) or {}
  for i, user in ipairs(users) do
    if user ~= tenant then sum = sum + math.max(0, count_in(slots[i]) or 0) end
  end
  if sum > limit then return sum end
end
