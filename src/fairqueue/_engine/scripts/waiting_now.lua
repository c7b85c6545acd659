-- waiting_now: of tenants what is ready in each pool: how many messages, what claims would charge for them, since when
-- the next of each lane is, and whether all of them are kept out by the tenant's own limit or a pause, so that they
-- compete with nobody; nothing is written. The charge is by the mean of the first messages, up to 20 of a tenant in a
-- pool and at least one of each lane; where workers charge by time, by what its messages take of late.
-- ARGV schema now:int
-- ROWS tenant
-- FLAGS no-writes,allow-oom
-- REPLY for each row: weight, then by pool: its name, ready messages, their charge, instant or -1, 1 if they compete
-- @include begin
-- @include names
-- @include header
-- @include weights
-- @include charges
-- @include look

local SAMPLE = 20
charges.by_time = true -- by which nobody is charged who has no mean

-- The headers of the first messages of a lane.
local function first_of(name, many_of)
  local mids = try('ZRANGE', k.lane(name), 0, many_of - 1)
  local headers = {}
  if failed(mids) or #mids == 0 then return headers end
  for _, text in ipairs(get_many(k.head, mids)) do headers[#headers + 1] = text and unpack_header(text) end
  return headers
end

local function add_lane(found, tenant, name, many_of)
  local ready, headers, cost = try('ZCARD', k.lane(name)), first_of(name, many_of), 0
  if failed(ready) or #headers == 0 then return end
  for _, h in ipairs(headers) do cost = cost + charges.of(tenant, tonumber(h.cost)) end
  found.ready, found.charge = found.ready + ready, found.charge + ready * cost / #headers
  found.since = older(found.since, tonumber(headers[1].moved_at))
end

-- Its lanes in the pool, and whether any of them competes.
local function lanes_in(pool, tenant)
  local of = pool .. US .. tenant
  local names, parked = call('ZRANGE', k.ring('t' .. US .. of), 0, -1), call('HGETALL', k.parked(of))
  local competes = #names > 0
  for i = 1, #parked, 2 do
    local limit = limit_of_group(parked[i + 1])
    names[#names + 1], competes = parked[i], competes or limit ~= 'tenant' and limit ~= '!pause'
  end
  return names, competes
end

local function looked_at(tenant)
  local answer = { string.format('%.17g', weights.of(tenant)) }
  for _, pool in ipairs(call('SMEMBERS', k.pools)) do
    local names, competes = lanes_in(pool, tenant)
    local found = { ready = 0, charge = 0 }
    for _, name in ipairs(names) do add_lane(found, tenant, name, math.max(1, math.floor(SAMPLE / #names))) end
    if found.ready > 0 then
      local since = found.since and int(found.since) or '-1'
      answer[#answer + 1] = { pool, found.ready, string.format('%.17g', found.charge), since, competes and 1 or 0 }
    end
  end
  return answer
end

local reply = {}
for at = ROWS_AT, #ARGV do reply[#reply + 1] = looked_at(ARGV[at]) end
return reply
