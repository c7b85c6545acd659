-- tenant_state: a tenant's counters and how much of its ready work is blocked; nothing is written.
-- ARGV schema now:int tenant
-- FLAGS no-writes,allow-oom
-- REPLY counters, messages present, messages blocked, instant of the oldest next message or -1, dead letters, weight,
-- how many may wait or -1
-- @include begin
-- @include names
-- @include header
-- @include look
-- @include weights

local blocked, oldest = 0, nil
for _, pool in ipairs(call('SMEMBERS', k.pools)) do
  local of = pool .. US .. tenant
  for _, name in ipairs(call('ZRANGE', k.ring('t' .. US .. of), 0, -1)) do
    local _, at = look_at(name)
    oldest = older(oldest, at)
  end
  for _, name in ipairs(call('HKEYS', k.parked(of))) do
    local size, at = look_at(name)
    blocked, oldest = blocked + size, older(oldest, at)
  end
end
local dead = try('ZCARD', k.dead(tenant))
return {
  call('HGETALL', k.tenant(tenant)), count_in(call('HGET', k.present, tenant)) or 0, blocked,
  oldest and int(oldest) or '-1', failed(dead) and 0 or dead, string.format('%.17g', weights.of(tenant)),
  count_in(call('HGET', k.backlogs, tenant)) or -1,
}
