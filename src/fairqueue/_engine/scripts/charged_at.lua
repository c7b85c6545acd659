-- charged_at: a page of the scopes where a tenant takes turns, or has left with a tag; nothing is written.
-- ARGV schema now:int tenant cursor
-- FLAGS no-writes,allow-oom
-- REPLY next cursor, scopes
-- @include begin
-- @include charged

-- What holds another type is named too: whoever goes there meets it before it has written anything.
local function has_tag(scope)
  return try('ZSCORE', k.ring(scope), tenant) or try('ZSCORE', k.tags(scope), tenant)
end

local page = call('HSCAN', k.vtime, cursor, 'MATCH', '[pg]\31*', 'COUNT', 500)
local found = {}
for i = 1, #page[2], 2 do
  local scope = page[2][i]
  if charged.kind_of(scope, tenant) and has_tag(scope) then found[#found + 1] = scope end
end
return { page[1], found }
