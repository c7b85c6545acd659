-- Deficit round robin (Shreedhar, Varghese, 1995) of a pool's tenants. When its turn comes a tenant may be served a
-- quantum more than what it has left from before, its deficit: as long as the next message fits, its turn goes on; one
-- that does not fit waits for the round in which it does. Who has nothing left to serve loses the rest. A tag is a
-- round, and within it the order of arrival; virtual time is the round of now. Weights divide what is charged, so the
-- quantum is the same for all. Lanes of a tenant and those who wait at a full group take their turns as by "fair".
local QUANTUM = 1 -- in cost units, of a tenant of weight 1; damaged: 1
if settings.quantum and settings.quantum >= 0.001 and settings.quantum <= 1000 then QUANTUM = settings.quantum end
local ROUNDING = 1e-9 -- a third of a quantum three times is one quantum

local function pool_of(scope) return string.match(scope, '^p\31(.*)$') end

local function deficit_of(pool, tenant) return tag_in(call('ZSCORE', k.deficits(pool), tenant)) end

policies.drr = {
  -- last of those who come in the next round
  enters = function(scope, last, oldest)
    if not pool_of(scope) then return policies.fair.enters(scope, last, oldest) end
    return behind_equals(scope, math.floor(clock(scope)) + 1)
  end,
  -- What does not fit waits as many rounds as it takes: their quanta are noted at once, so nobody comes by for each.
  waits = function(scope, tenant, tag, charge)
    local pool = pool_of(scope)
    if not pool then return nil end
    local deficit = deficit_of(pool, tenant)
    local has = deficit or QUANTUM
    local rounds = math.max(0, math.ceil((charge - has) / QUANTUM - ROUNDING))
    local changes = rounds > 0 or not deficit
    if changes and not READ_ONLY then call('ZADD', k.deficits(pool), has + rounds * QUANTUM, tenant) end
    return rounds > 0 and behind_equals(scope, math.floor(tag) + rounds) or nil
  end,
  served = function(scope, tenant, tag, charge, oldest)
    local pool = pool_of(scope)
    if not pool then return policies.fair.served(scope, tenant, tag, charge, oldest) end
    call('ZADD', k.deficits(pool), (deficit_of(pool, tenant) or QUANTUM) - charge, tenant)
    return tag
  end,
  leaves = function(scope, member, tag)
    local pool = pool_of(scope)
    if not pool then return leave(scope, member, tag) end
    guarantees.leave(scope, member)
    call('ZREM', k.ring(scope), member)
    call('ZREM', k.deficits(pool), member)
  end,
  -- what a tenant owes ends with its backlog, as what it has left does
  in_rounds = true,
}
