-- Limits and what is held against them.
-- @include pauses
local MAX_HOLDERS = 128 -- a script looks at each holder of a group that has no more than these
local any_dirty = not none_is_set and call('HLEN', k.dirty) > 0

local function is_limit(text) return text == 'none' or (count_in(text) or -1) >= 0 end

-- The default that the settings declare for limits of this name, as it is stored; nil: no such limit is declared.
local function declared_default(name)
  local readable, declared = pcall(cjson.decode, call('HGET', k.settings, 'limits') or '')
  for _, limit in ipairs(readable and type(declared) == 'table' and declared or {}) do
    if type(limit) == 'table' and limit.name == name then
      return type(limit.default) == 'number' and int(limit.default) or 'none'
    end
  end
end

-- The limit in force, or nil for unlimited: the group's own, else the declared default of its kind. A value that is no
-- limit (somebody's hand) is none.
local function limit_of(group)
  local pause = pauses.named_by(group)
  if pause then return pauses.stands(pause) and 0 or nil end
  local own, default = unpack(call('HMGET', k.limits, group, limit_of_group(group)))
  local value = is_limit(own) and own or default
  if value and not is_limit(value) then value = declared_default(limit_of_group(group)) end
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
