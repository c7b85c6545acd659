-- purge: one bounded step of a walk over what waits of a tenant, in one of its lanes or ('') among what is delayed.
-- What was accepted after `newest` stays: a walk beside a producer comes to an end. The cursor is, of what is delayed,
-- the name looked at last.
-- ARGV schema now:int session stream callno tenant queue lane cursor newest:int
-- FLAGS allow-oom
-- REPLY next cursor, 1 when there is more to come ('0' is the first too: its page may hold more than one step purges),
-- how many
-- @include transition
-- @include resting
-- @include replay

local answered = recorded(REPLAY_MS)
if answered then
  local more, purged, after = string.match(answered, '^(%d) (%d+) (.*)$')
  return { after, tonumber(more), tonumber(purged) }
end

local MOST, PAGE = 50, 60 -- a step takes less than 2 ms of the server's time
local state = lane == '' and 'd' or 'r'

-- Names stand one tenant after the other.
local function delayed_page()
  local from = cursor == '0' and '[' .. tenant .. US or '(' .. cursor
  local mids = call('ZRANGEBYLEX', k.delayed_names, from, '(' .. tenant .. ' ', 'LIMIT', 0, MOST)
  return #mids == MOST and mids[MOST] or '0', mids
end

-- A lane whose key holds another type is the doctor's.
local function lane_page()
  local page, mids = try('ZSCAN', k.lane(lane), cursor, 'COUNT', PAGE), {}
  if failed(page) then return '0', mids end
  for i = 1, #page[2], 2 do
    if tenant_of(page[2][i]) == tenant then mids[#mids + 1] = page[2][i] end
  end
  return page[1], mids
end

local after, mids
if state == 'd' then after, mids = delayed_page() else after, mids = lane_page() end

local function is_meant(h)
  if not h or h.state ~= state or h.seq > newest then return false end
  if state == 'r' then return h.lane == lane end
  return queue == '' or lane_of(h.lane).queue == queue
end

local heads, records = get_many(k.head, mids), get_many(k.leases, mids)
local left, purged = MOST, 0
local more = after ~= '0' and 1 or 0
for i, mid in ipairs(mids) do
  local h = header_of(mid, heads[i])
  if left > 0 and not heads[i] then
    left = left - 1
    drop_remains(mid) -- a script was cut that ended it: the rest of it goes
    unlisted[mid] = { state = state, lane = lane }
  elseif is_meant(h) then
    if left == 0 then
      after, more = cursor, 1
      break
    end
    left, purged = left - 1, purged + 1
    end_resting(mid, h, records[i])
    count(tenant, 'purged')
  end
end
flush_moves()
record(more .. ' ' .. purged .. ' ' .. after, REPLAY_MS)
return { after, more, purged }
