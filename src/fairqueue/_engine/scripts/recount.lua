-- recount: how many messages each tenant has where, against its counters; only in a namespace small enough
-- to be counted in one script. A script that was cut may have left them behind.
-- ARGV schema now:int fix:int most:int
-- FLAGS allow-oom
-- REPLY findings of (check, subject, evidence)
-- @include begin
-- @include names
-- @include header

local findings = {}
if call('HLEN', k.head) > most or call('HLEN', k.present) > most then return findings end

local counted, sums = {}, { r = 0, d = 0, x = 0 }
local heads = call('HGETALL', k.head)
for i = 1, #heads, 2 do
  local tenant, h = tenant_of(heads[i]), is_pair(heads[i]) and unpack_header(heads[i + 1])
  local of = counted[tenant] or { all = 0, r = 0, d = 0, x = 0 }
  if is_pair(heads[i]) then
    counted[tenant] = of
    of.all = of.all + 1
  end
  if h and h.state ~= 'f' then
    of[h.state] = of[h.state] + 1
    sums[h.state] = sums[h.state] + 1
  end
end
for _, tenant in ipairs(call('HKEYS', k.present)) do
  counted[tenant] = counted[tenant] or { all = 0, r = 0, d = 0, x = 0 }
end

-- A counter that is no number, or whose key holds another type, is as wrong as one that is behind; the former is named
-- by the walk over what must hold numbers.
local function compare(key, field, number, subject)
  local stored = try('HGET', key, field)
  local unreadable = failed(stored)
  if not unreadable and (count_in(stored or '0')) == number then return end
  local is = unreadable and 'unreadable' or tostring(stored or 0)
  if unreadable or count_in(is) then
    findings[#findings + 1] = { 'CLEAN', subject, 'counter ' .. field .. ' is ' .. is .. ', counted ' .. int(number) }
  end
  if fix == 1 then
    if unreadable then call('UNLINK', key) end
    call('HSET', key, field, int(number))
  end
end

for tenant, of in pairs(counted) do
  compare(k.present, tenant, of.all, tenant)
  if of.all > 0 then
    for _, state in ipairs({ 'r', 'd', 'x' }) do compare(k.tenant(tenant), state, of[state], tenant) end
  elseif fix == 1 then
    call('HDEL', k.present, tenant)
    call('UNLINK', k.tenant(tenant))
  end
end
for state, number in pairs(sums) do compare(k.totals, state, number, 'totals') end
return findings
