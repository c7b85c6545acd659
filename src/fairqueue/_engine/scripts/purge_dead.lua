-- purge_dead: dead letters are gone for good.
-- ARGV schema now:int tenant
-- ROWS id
-- FLAGS allow-oom
-- REPLY how many
-- @include begin
-- @include names
-- @include header
-- @include lease
-- @include policy
-- @include turns
-- @include bell
-- @include ring
-- @include gates
-- @include waiting
-- @include counters
-- @include slots
-- @include places

local ids, mids = {}, {}
for at = ROWS_AT, #ARGV do ids[#ids + 1], mids[#mids + 1] = ARGV[at], tenant .. US .. ARGV[at] end
local heads, purged, seen = get_many(k.head, mids), 0, {}
for i, mid in ipairs(mids) do
  local h = unpack_header(heads[i])
  if h and h.state == 'x' and not seen[mid] then
    seen[mid] = true
    purged = purged + 1
    make_gone(mid)
    moved_between(tenant, 'x', nil)
    count(tenant, 'purged')
  end
end
flush_moves()
many('ZREM', k.dead(tenant), ids)
if call('EXISTS', k.dead(tenant)) == 0 then call('SREM', k.dead_tenants, tenant) end
return purged
