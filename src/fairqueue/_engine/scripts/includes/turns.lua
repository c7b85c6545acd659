-- Taking turns in a scope (see keys: a pool's tenants, a tenant's lanes, the tenants waiting at a group).
-- Virtual times are read once and written at the end by flush_clocks().
-- SHARES LARGEST_TAG tag_in clock first set_clock stop_clock flush_clocks last_tag enter leave behind_equals
local clocks, moved = {}, {}
local stopped = {}

-- A tag or a virtual time as a number; nil where it is none that turns can be taken by (somebody's hand): infinite, or
-- so large that what a message costs would be lost in it.
local LARGEST_TAG = 2 ^ 52
local function tag_in(stored)
  local tag = tonumber(stored)
  if tag and tag > -LARGEST_TAG and tag < LARGEST_TAG then return tag end
end

-- A virtual time that was destroyed is taken from who is next, or a newcomer would enter far behind all others.
local function clock(scope)
  if not clocks[scope] then
    local time = tag_in(call('HGET', k.vtime, scope))
    if not time then time = tag_in(call('ZRANGE', k.ring(scope), 0, 0, 'WITHSCORES')[2]) end
    clocks[scope] = time or 0
  end
  return clocks[scope]
end

-- Who is next, and by which tag: a destroyed one is taken from virtual time.
local function first(scope)
  local top = call('ZRANGE', k.ring(scope), 0, 0, 'WITHSCORES')
  return top[1], top[1] and (tag_in(top[2]) or clock(scope))
end

local function set_clock(scope, time)
  clocks[scope], moved[scope], stopped[scope] = time, true, nil
end

-- Nobody takes or waits for turns: virtual time returns to 0 and old tags mean nothing.
local function stop_clock(scope)
  call('UNLINK', k.tags(scope), k.below(scope))
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

local function last_tag(scope, member) return tag_in(call('ZSCORE', k.tags(scope), member)) end

local function enter(scope, member, tag)
  call('ZADD', k.ring(scope), tag, member)
  call('ZREM', k.tags(scope), member)
  guarantees.follow(scope, member, tag)
end

-- Leaves the ring; a tag that is still ahead of virtual time is kept, those that fell behind are dropped.
local function leave(scope, member, tag)
  local time = clock(scope)
  guarantees.leave(scope, member) -- first: nothing stands there that is in no ring
  if tag_in(tag) and tag > time then call('ZADD', k.tags(scope), tag, member) end
  call('ZREM', k.ring(scope), member)
  call('ZREMRANGEBYSCORE', k.tags(scope), '-inf', '(' .. string.format('%.17g', time))
end

-- Of those who come to a scope at one virtual time, who came first is first. By their names, the same tenants would be
-- first each time: a lane that needs two full groups is sent from one to the other again and again.
local SAME, BEHIND = 2 ^ -10, 2 ^ -24 -- in cost units
local function behind_equals(scope, tag)
  local from, to = string.format('%.17g', tag), string.format('%.17g', tag + SAME)
  local last = call('ZREVRANGEBYSCORE', k.ring(scope), to, from, 'WITHSCORES', 'LIMIT', 0, 1)
  return last[1] and last[2] + BEHIND or tag
end
