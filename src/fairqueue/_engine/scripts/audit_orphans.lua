-- audit_orphans: pages of the payloads, due times, deadlines, notes, instants of expiry, and names of what is delayed:
-- each belongs to a message.
-- cursor is "<kind><n>".
-- ARGV schema now:int cursor fix:int of
-- FLAGS allow-oom
-- REPLY next cursor, how many, findings of (check, subject, evidence)
-- @include transition
-- @include audit
-- @include walks
-- @include expiring

local KINDS = { 'b', 'd', 'a', 't', 'n', 'e', 's' }
local WALKS = {
  b = { 'HSCAN', k.body, 'CLEAN', 'a payload without a message', 'HDEL' },
  d = { 'ZSCAN', k.delayed, 'KEEP', 'a due time of a message that is not delayed', 'ZREM', 'd' },
  a = { 'ZSCAN', k.delayed_names, 'CLEAN', 'a name, among the delayed, of a message that is not', 'ZREM', 'd' },
  t = { 'ZSCAN', k.deadlines, 'OWNER', 'a deadline of a message that is not in flight', 'ZREM', 'f' },
  n = { 'HSCAN', k.notes, 'CLEAN', 'a note without a message', 'HDEL' },
  e = { 'ZSCAN', k.expiring, 'CLEAN', 'an instant of expiry of a message that does not wait', 'ZREM', 'w' },
  s = { 'HSCAN', k.stopped },
}
local kind, inner = place_in(KINDS, cursor)

local command, key, check, evidence, remove, state = unpack(WALKS[kind])
local page = call(command, key, inner, 'COUNT', 200)
local entries = page[2]

local function check_stopped(name)
  local size = try('ZCARD', k.lane(name))
  if not failed(size) then return end
  found('KEEP', 'lane' .. US .. name, 'the lane key holds a ' .. call('TYPE', k.lane(name)).ok .. ', not a zset')
  if fix == 1 then call('UNLINK', k.lane(name)) end
end

local function is_in(place, h)
  if place == 'w' then return expiring.instant(h) and (h.state == 'r' or h.state == 'd') end
  return h.state == place
end

for i = 1, #entries, 2 do
  if kind == 's' then check_stopped(entries[i]) end
end
for i = 1, kind == 's' and 0 or #entries, 2 do
  local text = call('HGET', k.head, entries[i])
  local h = unpack_header(text)
  -- a running message whose header was destroyed: the walk over the leases names it and writes it again
  local running = not text and kind ~= 'd' and call('HEXISTS', k.leases, entries[i]) == 1
  if not running and not text or (state and h and not is_in(state, h)) then
    found(check, entries[i], evidence)
    if fix == 1 and kind ~= 't' then call(remove, key, entries[i]) end
    if fix == 1 and kind == 't' then call('ZADD', key, int(now), entries[i]) end -- reclaim drops it with its slots
  end
end

return { step_after(KINDS, kind, page[1]), #entries / 2, findings }
