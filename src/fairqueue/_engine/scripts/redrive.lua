-- redrive: dead letters go to the end of their lanes, in their old order; attempt and crashes start again, and
-- they expire no more.
-- ARGV schema now:int session stream callno tenant
-- ROWS id
-- REPLY how many
-- @include transition
-- @include irreplaceable
-- @include replay
-- @include uses

local answered = recorded(REPLAY_MS)
if answered then return tonumber(answered) end

local mids = {}
for at = ROWS_AT, #ARGV do mids[#mids + 1] = tenant .. US .. ARGV[at] end
local heads, letters = get_many(k.head, mids), {}
local seen = {}
for i, mid in ipairs(mids) do
  local h = unpack_header(heads[i])
  if h and h.state == 'x' and not seen[mid] then
    seen[mid] = true
    letters[#letters + 1] = { mid = mid, header = h }
  end
end
table.sort(letters, function(a, b) return a.header.seq < b.header.seq end)

local ids = {}
if #letters > 0 then at_letters_of(tenant) end
local seq = #letters > 0 and numbers('seq', #letters) - #letters or 0
for i, letter in ipairs(letters) do
  local h = letter.header
  h.attempt, h.crashes, h.redrives, h.via, h.seq = 0, 0, h.redrives + 1, 'v', seq + i
  uses.note(tenant, lane_of(h.lane).groups, now)
  h.expires = '' -- whoever sends it back wants it to run
  moved_between(tenant, 'x', make_ready(letter.mid, h))
  count(tenant, 'redriven')
  ids[i] = id_of(letter.mid)
end
letters_leave(tenant, ids)
flush_moves()
record(#letters, REPLAY_MS)
return #letters
