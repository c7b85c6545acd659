-- Limits and what is held against them.
local MAX_HOLDERS = 128 -- a script looks at each holder of a group that has no more than these
local any_dirty = call('HLEN', k.dirty) > 0

-- The limit in force, or nil for unlimited: the group's own, else the declared default of its kind.
local function limit_of(group)
  local values = call('HMGET', k.limits, group, limit_of_group(group))
  local value = values[1] or values[2]
  return value and tonumber(value) or nil -- 'none' is no number
end

local function dirty_state(group)
  if any_dirty then return call('HGET', k.dirty, group) end
  return false
end

-- Marks a group whose slots cannot be trusted until reconcile has seen it.
local function mark_dirty(group, state)
  any_dirty = true
  try('HSETNX', k.dirty, group, state)
end

-- Slots held in a group, or nil when its key holds something else.
local function held_in(group)
  local held = try('HLEN', k.slots(group))
  if failed(held) then return nil end
  return held
end
