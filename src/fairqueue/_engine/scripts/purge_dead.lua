-- purge_dead: dead letters are gone for good.
-- ARGV schema now:int session stream callno tenant
-- ROWS id
-- FLAGS allow-oom
-- REPLY how many
-- @include transition
-- @include irreplaceable
-- @include replay

local answered = recorded(REPLAY_MS)
if answered then return tonumber(answered) end

-- A purge or an enqueue was cut: there is no message, but something of one. Where there is nothing nothing is written.
local function left_behind(mid)
  local listed = try('ZSCORE', k.dead(tenant), id_of(mid))
  if listed and not failed(listed) then return true end
  return call('HEXISTS', k.body, mid) == 1 or call('HEXISTS', k.notes, mid) == 1
end

local mids = {}
for at = ROWS_AT, #ARGV do mids[#mids + 1] = tenant .. US .. ARGV[at] end
local heads, purged, seen = get_many(k.head, mids), 0, {}
for i, mid in ipairs(mids) do
  local h = unpack_header(heads[i])
  if h and h.state == 'x' and not seen[mid] then
    seen[mid] = true
    purged = purged + 1
    make_gone(mid)
    unlist_later(mid, h)
    count(tenant, 'purged')
  elseif not heads[i] and left_behind(mid) then
    at_letters_of(tenant)
    drop_remains(mid)
    unlisted[mid] = { state = 'x' }
  end
end
flush_moves()
record(purged, REPLAY_MS)
return purged
