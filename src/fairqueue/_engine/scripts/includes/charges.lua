-- What a delivery is charged to its tenant and its lane. The lease remembers that, and the tenant's turn after it, for
-- when more is known (corrections.lua).
-- SHARES charges
local charges = { by_time = false }
local LEAST = 0.0001 -- seconds, of an estimate: a turn that charges nothing would never end
local means = {}

-- What the tenant's recent messages took, in microseconds, kept while it has messages; false: nobody knows.
function charges.mean_of(tenant)
  if means[tenant] == nil then means[tenant] = count_in(call('HGET', k.tenant(tenant), 'mean_us')) or false end
  return means[tenant]
end

-- By time a claim charges what a message of the tenant takes on the average of late, until its own time is known.
function charges.of(tenant, cost)
  local mean = charges.by_time and charges.mean_of(tenant)
  return mean and math.max(mean / 1000000, LEAST) or cost
end

local RECENT = 8 -- messages: of so many each counts for an eighth
function charges.learn(tenant, seconds)
  local took, mean = math.floor(math.min(seconds, 1000000) * 1000000 + 0.5), charges.mean_of(tenant)
  means[tenant] = mean and math.floor(mean + (took - mean) / RECENT + 0.5) or took
  return means[tenant]
end

function charges.pack(charged, turn) return string.format('%.17g %.17g', charged, turn) end
