-- A message in flight that gets no further try goes to the dead letters, or is dropped where none are kept. Returns the
-- outcome: 'dead', 'dropped', or 'retried' when the letters could not be written.
local function bury(mid, h, reason, text)
  local tenant = tenant_of(mid)
  if settings.dead_letters == '0' then
    make_gone(mid)
    count(tenant, 'dropped')
    return 'dropped'
  end
  local state = make_dead(mid, h, reason, text)
  moved_between(tenant, 'f', state)
  if state ~= 'x' then return 'retried' end
  count(tenant, 'dead_lettered')
  return 'dead'
end
