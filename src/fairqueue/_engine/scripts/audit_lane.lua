-- audit_lane: a page of the entries of a lane: each is a message that is ready in it, and in it alone.
-- ARGV schema now:int cursor fix:int of
-- FLAGS allow-oom
-- REPLY next cursor, how many, findings of (check, subject, evidence)
-- @include transition
-- @include audit

local held = other_type(k.lane(of), 'zset')
if held then
  found('KEEP', 'lane' .. US .. of, 'the lane key holds a ' .. held .. ', not a zset')
  if fix == 1 then
    call('UNLINK', k.lane(of))
    lane_emptied(lane_of(of)) -- what stands in it by its header has been put back before lanes are looked at
    flush_moves()
  end
  return { '0', 1, findings }
end
local page = call('ZSCAN', k.lane(of), cursor, 'COUNT', 200)
local entries = page[2]
for i = 1, #entries, 2 do
  local h = unpack_header(call('HGET', k.head, entries[i]))
  if not h or h.state ~= 'r' or h.lane ~= of then
    found('KEEP', entries[i], 'the lane lists a message that is not ready in it')
    if fix == 1 then call('ZREM', k.lane(of), entries[i]) end
  end
end
if fix == 1 then
  lane_emptied(lane_of(of))
  flush_moves()
end
return { page[1], #entries / 2, findings }
