-- audit_uses: a page of the shared groups that a tenant with a guarantee uses: are they known, and have they enough?
-- ARGV schema now:int cursor fix:int of
-- FLAGS allow-oom
-- REPLY next cursor, how many, findings of (check, subject, evidence)
-- @include transition
-- @include audit
-- @include uses

guarantees.look()
if not guarantees.of(of) or not sound(k.uses(of), 'zset', of) then return { '0', 0, findings } end
if not uses.known(of) and call('HEXISTS', k.present, of) == 1 then
  found('MOVES', of, 'the tenant is guaranteed slots, and which shared groups it uses is not known')
end

local page = call('ZSCAN', k.uses(of), cursor, 'COUNT', 50)
for i = 1, #page[2], 2 do
  local group, till = page[2][i], tonumber(page[2][i + 1])
  if is_pair(group) and till > now and sound(k.users(group), 'zset', group) then
    if not call('ZSCORE', k.users(group), of) then
      found('MOVES', group, of .. ' uses the group, and is not among those who do')
      if fix == 1 then uses.note_user(group, of, till) end
    end
    local limit = limit_of(group)
    local sum = uses.beyond(group, limit)
    if sum then
      found('SLOTS', group, 'those who use the group are guaranteed ' .. int(sum) .. ' slots, and its limit is '
        .. int(limit) .. ': raise it, or guarantee less')
    end
  end
end
return { page[1], #page[2] / 2, findings }
