-- find_uses: a page of all messages: notes which shared groups a tenant uses, of what came before anybody noted it. A
-- cursor of '' begins where it is to get its first guarantee: from then on what comes in is noted too.
-- ARGV schema now:int tenant cursor
-- FLAGS allow-oom
-- REPLY next cursor
-- @include transition
-- @include uses

local PAGE = 500
if cursor == '' then
  call('HSET', k.settings, 'guarantees', '1') -- first: without it nobody looks at them
  call('HSETNX', k.guarantees, tenant, '0') -- none yet
  cursor = '0'
end
guarantees.look()
if not guarantees.stored(tenant) then return '0' end -- it was taken away meanwhile

local page = call('HSCAN', k.head, cursor, 'MATCH', guarantees.fields_of(tenant), 'COUNT', PAGE)
for i = 1, #page[2], 2 do
  local h = header_of(page[2][i], page[2][i + 1])
  if h and h.state ~= 'x' then uses.note(tenant, lane_of(h.lane).groups, tonumber(h.moved_at)) end
end
if page[1] == '0' then uses.now_known(tenant) end
return page[1]
