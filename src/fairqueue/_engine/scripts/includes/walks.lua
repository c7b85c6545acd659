-- A walk over several keys, one kind after the other, a page a step. A cursor is "<kind><n>"; any other one begins.
local function place_in(kinds, cursor)
  local kind, inner = string.match(cursor, '^(%l)(%d+)$')
  return kind or kinds[1], inner or '0'
end

-- The cursor after a page of this kind, whose own next cursor is `inner`; '0' at the end of all.
local function step_after(kinds, kind, inner)
  if inner ~= '0' then return kind .. inner end
  for i, name in ipairs(kinds) do
    if name == kind then return kinds[i + 1] and kinds[i + 1] .. '0' or '0' end
  end
end
