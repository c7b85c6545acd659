-- retag: the scheduler was changed, and the tags of the other kind mean nothing to this one: everybody who takes turns
-- or waits starts level. A page of a pool's tenants (their lanes) or of the groups; the pool itself goes last, in one
-- step, so whoever came meanwhile by the old virtual time is level with the others too.
-- ARGV schema now:int pool cursor
-- FLAGS allow-oom
-- REPLY next cursor ('' at the end); a cursor is "<what><n>", the first is "ring0"
-- @include transition

-- In one command of the server: a tenant may have thousands of lanes.
local function level(key) try('ZUNIONSTORE', key, 1, key, 'WEIGHTS', 0) end

local function level_scope(scope)
  level(k.ring(scope))
  local below = call('ZRANGE', k.below(scope), 0, -1)
  stop_clock(scope)
  for _, tenant in ipairs(below) do call('ZADD', k.below(scope), 0, tenant) end
end

local function level_pool()
  level_scope('p' .. US .. pool)
  call('UNLINK', k.deficits(pool))
end

local function level_tenant(tenant)
  local any = lane_of(tenant .. US .. 'none' .. US .. pool)
  level_scope(any.scope)
  for _, group in ipairs(call('HVALS', parked_key(any))) do level(waiting_key(pool, group, tenant)) end
end

-- The tags of promises too: virtual time goes on to the tag of a promise that is kept, so an old one would put whoever
-- comes next behind all that was ever served here.
local function level_promises(group)
  local woken, levelled = woken_key(pool, group), {}
  local found = try('HGETALL', woken)
  for at = 1, failed(found) and 0 or #found, 2 do
    local name, text = found[at], found[at + 1]
    local head, tail = string.match(text, '^(%d+\31[^\31]+\31)[^\31]*(\31%d+)$')
    if string.find(name, '\30', 1, true) then head, tail = string.match(text, '^([^\31]+\31)[^\31]+$'), '' end
    if head then
      levelled[#levelled + 1] = name
      levelled[#levelled + 1] = head .. '0' .. tail
    end
  end
  many('HSET', woken, levelled)
end

local function level_group(group)
  level_scope(group_scope(pool, group))
  level_promises(group)
end

local PAGE = 100
local what, from = string.match(cursor, '^(%l+)(%d+)$')
local after = { ring = 'blocked0', blocked = 'groups0', groups = 'pool0', pool = '' }
local page

if what == 'ring' then
  page = call('ZSCAN', k.ring('p' .. US .. pool), from, 'COUNT', PAGE)
  for i = 1, #page[2], 2 do level_tenant(page[2][i]) end
elseif what == 'blocked' then
  page = call('SSCAN', k.blocked(pool), from, 'COUNT', PAGE)
  for _, tenant in ipairs(page[2]) do level_tenant(tenant) end
elseif what == 'groups' then
  page = call('SSCAN', k.groups, from, 'COUNT', PAGE)
  for _, group in ipairs(page[2]) do level_group(group) end
else
  page = { '0' }
  level_pool()
end
flush_clocks()
return page[1] == '0' and after[what] or what .. page[1]
