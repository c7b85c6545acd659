-- Taking turns in a scope (see keys: a pool's tenants, a tenant's lanes, the tenants waiting at a group).
-- Virtual times are read once and written at the end by flush_clocks().
local clocks, moved, stopped = {}, {}, {}

local function first(scope)
  local top = call('ZRANGE', k.ring(scope), 0, 0, 'WITHSCORES')
  return top[1], tonumber(top[2])
end

-- A virtual time that was destroyed is taken from who is next, or a newcomer would enter far behind all others.
local function clock(scope)
  if not clocks[scope] then
    local stored = call('HGET', k.vtime, scope)
    if not stored then
      local _, tag = first(scope)
      stored = tag or 0
    end
    clocks[scope] = tonumber(stored)
  end
  return clocks[scope]
end

local function set_clock(scope, time)
  clocks[scope], moved[scope], stopped[scope] = time, true, nil
end

-- Nobody takes or waits for turns: virtual time returns to 0 and old tags mean nothing.
local function stop_clock(scope)
  call('UNLINK', k.tags(scope))
  clocks[scope], moved[scope], stopped[scope] = 0, nil, true
end

local function flush_clocks()
  local set, del = {}, {}
  for scope in pairs(moved) do
    set[#set + 1] = scope
    set[#set + 1] = string.format('%.17g', clocks[scope])
  end
  for scope in pairs(stopped) do del[#del + 1] = scope end
  many('HSET', k.vtime, set)
  many('HDEL', k.vtime, del)
end

local function last_tag(scope, member) return tonumber(call('ZSCORE', k.tags(scope), member)) end

local function enter(scope, member, tag)
  call('ZADD', k.ring(scope), tag, member)
  call('ZREM', k.tags(scope), member)
end

-- Leaves the ring; a tag that is still ahead of virtual time is kept, those that fell behind are dropped.
local function leave(scope, member, tag)
  local time = clock(scope)
  if tag and tag > time then call('ZADD', k.tags(scope), tag, member) end
  call('ZREM', k.ring(scope), member)
  call('ZREMRANGEBYSCORE', k.tags(scope), '-inf', '(' .. string.format('%.17g', time))
end
