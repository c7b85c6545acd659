-- Counters, gathered while the script runs and written once at its end. The namespace keeps its totals for
-- ever, a tenant keeps its own while it has messages. r, d and x are gauges (ready, delayed, dead);
-- what is in flight is what is present less these three.
-- SHARES count tally moved_between present flush_counters numbers
local counted, presence, tallied = {}, {}, {}

local function count(tenant, what, by)
  local of = counted[tenant]
  if not of then
    of = {}
    counted[tenant] = of
  end
  of[what] = (of[what] or 0) + (by or 1)
end

-- For the namespace alone.
local function tally(what, by) tallied[what] = (tallied[what] or 0) + by end

local function moved_between(tenant, from, to)
  if from and from ~= 'f' then count(tenant, from, -1) end
  if to and to ~= 'f' then count(tenant, to, 1) end
end

local function present(tenant, by) presence[tenant] = (presence[tenant] or 0) + by end

local function flush_counters()
  for tenant, of in pairs(counted) do
    for what, by in pairs(of) do
      call('HINCRBY', k.tenant(tenant), what, by)
      tally(what, by)
    end
  end
  for what, by in pairs(tallied) do call('HINCRBY', k.totals, what, by) end
  for tenant, by in pairs(presence) do
    if call('HINCRBY', k.present, tenant, by) <= 0 then
      call('UNLINK', k.tenant(tenant))
      call('HDEL', k.present, tenant)
    end
  end
end

-- The last of so many new numbers. They begin above 1 (configure writes that), so one that began at nothing was lost:
-- it goes on from the clock, ahead of the numbers in use, and so does one that no place can be made of.
local function numbers(name, count)
  local last = call('HINCRBY', k.counters, name, count)
  if last > count and last < SEQS then return last end
  call('HSET', k.counters, name, int(now))
  return call('HINCRBY', k.counters, name, count)
end
