-- Where a tenant may have been charged: in pools, and at groups that are not the own one of another tenant.
-- SHARES charged
local charged = {}

-- 'p' for a pool, 'g' for a group; nil or false: the tenant takes no turns in such a scope.
function charged.kind_of(scope, tenant)
  local kind, rest = string.match(scope, '^([pg])\31[^\31]+(.*)$')
  local own = kind == 'g' and string.match(rest, '^\31tenant\31(.*)$')
  return (not own or own == tenant) and kind
end
