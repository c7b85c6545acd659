-- Promises that nobody can come for: of a lane that takes no turns, or that the lane does not count. The slot would be
-- kept from everybody for good, a leak like that of a slot without a lease. No script leaves one; a key that was
-- damaged may.
-- SHARES drop_strays
local function is_counted(lane, group, further)
  local text = call('HGET', woken_key(lane.pool, group), lane.name)
  if not text then return false end
  local count = tonumber(string.match(text, '^(%d+)\31')) or 1
  local _, _, _, first_number = batons_of(lane, group)
  local number = tonumber(further)
  return number ~= nil and number > first_number and number < first_number + count
end

-- The lane's own field: each baton that it counts is there, and it takes turns.
local function may_come(lane, group)
  local count, _, _, number = batons_of(lane, group)
  for further = number + 1, number + count - 1 do
    if call('HEXISTS', woken_key(lane.pool, group), further_baton(lane, further)) == 0 then return false end
  end
  return try('ZSCORE', k.ring(lane.scope), lane.name) -- false: nowhere; a key of another type says nothing
end

local function parts_of(field) return string.match(field, '^([^\30]*)\30?(.*)$') end

local function is_stray(pool, group, field)
  local name, further = parts_of(field)
  local lane = own_lane(name, pool, tenant_of(name))
  if not lane then return true end
  if further ~= '' then return not is_counted(lane, group, further) end
  return not may_come(lane, group)
end

local function drop(pool, group, field)
  call('HDEL', woken_key(pool, group), field)
  local name, further = parts_of(field)
  local lane = further == '' and own_lane(name, pool, tenant_of(name))
  if not lane then return end
  lane_leaves(lane)
  local _, seq = next_in(lane)
  if seq then lane_ready(lane, seq) end
end

-- Looks at up to so many promises of the pool at the group, of more by chance; returns at how many. First at the fields
-- of lanes: those that they no longer count come after them.
local function drop_strays(pool, group, most)
  local fields = try('HRANDFIELD', woken_key(pool, group), most)
  if failed(fields) then return 0 end
  table.sort(fields, function(a, b)
    local of_a, of_b = select(2, parts_of(a)), select(2, parts_of(b))
    if (of_a == '') ~= (of_b == '') then return of_a == '' end
    return a < b
  end)
  for _, field in ipairs(fields) do
    if call('HEXISTS', woken_key(pool, group), field) == 1 and is_stray(pool, group, field) then
      drop(pool, group, field)
    end
  end
  return #fields
end
