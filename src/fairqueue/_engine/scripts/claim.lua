-- claim: takes up to n messages over all tenants of the given pools, in fair order; each takes one slot in
-- every limit group of its lane, or none. First all is chosen, then all is written: the records, then the
-- slots, then the old places. Asked twice with the same call number it answers with the same leases.
-- ARGV schema now:int session stream callno n:int visibility:int consumer
-- ROWS pool
-- FLAGS allow-oom
-- REPLY again, ms until the next due message or -1, dirty groups, leases of (mid, token, deadline, header, body),
-- the settings' revision
-- @include transition
-- @include promote_due
-- @include replay
-- @include claim_replay
-- @include rivals
-- @include claim_admit
-- @include claim_pick
-- @include claim_take

local PROMOTE = 200
local given, rest, repeated = replay_claim()
local again = 0

-- What nobody can write again must hold what it should before anything is written: a claim that ended half way would
-- leave deliveries nobody got, and count each of them as a crash.
if not repeated then
  call('HLEN', k.leases)
  call('ZCARD', k.deadlines)
  call('HLEN', k.body)
  local promoted = promote_due(PROMOTE)
  for at = ROWS_AT, #ARGV, ROW do pick_from(ARGV[at], n - #given) end
  take(given, rest)
  finish_lanes()
  if #given < n and (promoted == PROMOTE or exhausted() or wakes > 0) then again = 1 end
end

for at = ROWS_AT, #ARGV, ROW do
  local pool = ARGV[at]
  if call('EXISTS', k.ring('p' .. US .. pool)) == 0 then
    call('DEL', k.bell(pool))
  elseif #given >= n or again == 1 then
    bells[pool] = true -- this client is full and work is left: the next idle one is called
  end
end
flush_moves()

local next_due = call('ZRANGE', k.delayed, 0, 0, 'WITHSCORES')
return {
  again,
  next_due[2] and math.max(0, math.min(tonumber(next_due[2]) - now, LONGEST_MS)) or -1,
  dirty_found(),
  deliver(given),
  settings.revision,
}
