-- get: all that is stored of messages; nothing is written.
-- ARGV schema now:int
-- ROWS mid
-- FLAGS no-writes,allow-oom
-- REPLY for each row nothing, or mid, header, body, lease, deadline or due time, note, place in its lane
-- @include begin
-- @include names
-- @include header

local reply = {}
for at = ROWS_AT, #ARGV do
  local mid = ARGV[at]
  local text = call('HGET', k.head, mid)
  local h = unpack_header(text)
  local found = {}
  if h then
    local due = h.state == 'f' and call('ZSCORE', k.deadlines, mid)
      or h.state == 'd' and call('ZSCORE', k.delayed, mid)
    local place = h.state == 'r' and try('ZRANK', k.lane(h.lane), mid)
    if failed(place) then place = false end
    found = {
      mid, text, call('HGET', k.body, mid), call('HGET', k.leases, mid), due, call('HGET', k.notes, mid), place or -1,
    }
  end
  reply[#reply + 1] = found
end
return reply
