-- set_limit: the limit of one group: a number, 'none' for unlimited, '' to go back to the declared default; and what a
-- tenant is guaranteed of it, '' for nothing. Whoever waits and fits now is woken.
-- ARGV schema now:int session stream callno group value guaranteed revision
-- REPLY 1 if waiters are left for whom there is room (call again); or, where nothing was set, -1 if find_uses must look
-- which shared groups the tenant uses; or the one that would be guaranteed more than it has, how much, and its limit
-- @include transition
-- @include replay
-- @include revision
-- @include uses

local answered = recorded(REPLAY_MS)
if answered then return { tonumber(answered) } end
must_know(revision)

local of_tenant, tenant, number = limit_of_group(group) == 'tenant', id_of(group), tonumber(guaranteed)
guarantees.look()
local before = of_tenant and guarantees.of(tenant)

-- Guarantees that add up to more than a shared group has: the group, how much that would be, and its limit. What makes
-- it no worse is not refused.
local function beyond_a_group()
  for _, shared in ipairs(uses.of(tenant)) do
    local limit = limit_of(shared)
    local sum = uses.beyond(shared, limit, tenant, number)
    if sum then return { shared, int(sum), int(limit) } end
  end
end

local function beyond_this_group()
  local is, limit = limit_of(group), tonumber(value == '' and call('HGET', k.limits, limit_of_group(group)) or value)
  local sum = uses.beyond(group, limit)
  if sum and (not is or is == 0 or is > limit) then return { group, int(sum), int(limit) } end
end

local function forget()
  call('UNLINK', k.uses(tenant)) -- first: a guarantee of which nothing is noted is found
  call('HDEL', k.guarantees, tenant)
end

local function note_whether_any()
  guarantees.look()
  if not guarantees.any and settings.guarantees then call('HDEL', k.settings, 'guarantees') end
end

if number then
  call('HLEN', k.guarantees) -- of another type it takes none: nothing is set
  if not uses.known(tenant) and call('HEXISTS', k.present, tenant) == 1 then return { -1 } end
end
local refusal
if not of_tenant then refusal = beyond_this_group() end
if number and number > (before or 0) then refusal = beyond_a_group() end
if refusal then
  if guarantees.stored(tenant) == '0' then forget() end
  note_whether_any()
  return refusal
end

-- Who was served more than its share by a guarantee that is taken away, or lowered, stands level with whoever comes
-- now: it would wait until all others had been served as much.
local function stand_level(scope)
  call('ZREM', k.tags(scope), tenant)
  local tag = tag_in(call('ZSCORE', k.ring(scope), tenant))
  if tag and tag > clock(scope) then call('ZADD', k.ring(scope), string.format('%.17g', clock(scope)), tenant) end
end

if value == '' then call('HDEL', k.limits, group) else call('HSET', k.limits, group, value) end
if number then
  call('HSET', k.settings, 'guarantees', '1') -- first: without it nobody looks at them
  uses.now_known(tenant)
  call('HSET', k.guarantees, tenant, guaranteed)
elseif of_tenant and guarantees.stored(tenant) then
  forget()
end
if before and before > (number or 0) then
  for scope in pairs(guarantees.scopes_of(tenant)) do
    guarantees.leave(scope, tenant)
    if not policy.by_seq then stand_level(scope) end
  end
end
note_whether_any()
wake({ [group] = true })
wake_leftovers(group)
flush_moves()
local more = wakes >= most_wakes and 1 or 0
record(more, REPLAY_MS)
return { more }
