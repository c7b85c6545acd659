-- Weights: of two tenants that compete one of weight 2 gets twice the service of one of weight 1. So where tenants take
-- turns a message charges its cost / weight; where a tenant's own lanes do, its cost. A weight that is none (somebody's
-- hand) counts as 1, and stops nobody.
-- @include seldom
-- SHARES weights
local weights = {}
local LOWEST, HIGHEST = 0.01, 100 -- as in tenants.py
local any_set, known = nil, {}

-- The weight that a stored text says; nil if it says none.
function weights.read(text)
  local weight = tonumber(text)
  return weight and weight >= LOWEST and weight <= HIGHEST and weight or nil
end

-- Asked for once a script, and no tenant is looked up where none has a weight.
local function are_set()
  if any_set == nil then
    local set = none_is_set and 0 or try('HLEN', k.weights)
    any_set = not failed(set) and set > 0
  end
  return any_set
end

function weights.of(tenant)
  if not are_set() then return 1 end
  if not known[tenant] then known[tenant] = weights.read(call('HGET', k.weights, tenant)) or 1 end
  return known[tenant]
end

-- What a message of that cost charges its tenant where tenants take turns, and the other way round.
function weights.charge(tenant, cost) return cost / weights.of(tenant) end
function weights.cost(tenant, charge) return charge * weights.of(tenant) end
