-- claim: takes up to n messages over all tenants of the given pools, in fair order; each takes one slot and
-- one token in every limit group of its lane, or none. First all is chosen, then all is written: the tokens, the
-- records, then the slots, then the old places. `by_time`: tenants are charged for the time that their messages take.
-- Asked twice with the same call number it answers with the same leases.
-- ARGV schema now:int session stream callno n:int visibility:int consumer by_time:int
-- ROWS pool
-- FLAGS allow-oom
-- REPLY again, ms until the next message or token is due or -1, dirty groups, leases of (mid, token, deadline, header,
-- body), the settings' revision
-- @include transition
-- @include irreplaceable
-- @include promote_due
-- @include expiring
-- @include expire_due
-- @include rates_due
-- @include service
-- @include replay
-- @include claim_replay
-- @include rivals
-- @include claim_admit
-- @include claim_pick
-- @include claim_take

local PROMOTE = 200
charges.by_time = by_time == 1
local given, rest, repeated = replay_claim()
local again = 0

if not repeated then
  pauses.must_be_readable()
  rates.must_be_readable()
  local expired = expiring.sweep(PROMOTE)
  if expired > 0 then emptied_leave() end -- what such a lane was promised is for others in this claim
  local promoted, more_due = promote_due(PROMOTE), rates.due()
  local woken = wakes
  for at = ROWS_AT, #ARGV, ROW do pick_from(ARGV[at], n - #given) end
  take(given, rest)
  finish_lanes()
  service.write()
  local full = promoted == PROMOTE or expired == PROMOTE or more_due or bounds.exhausted()
  if #given < n and (full or wakes > woken) then again = 1 end
end

for at = ROWS_AT, #ARGV, ROW do
  local pool = ARGV[at]
  if call('EXISTS', k.ring('p' .. US .. pool)) == 0 or pauses.of_pool(pool) then
    call('DEL', k.bell(pool))
  elseif #given >= n or again == 1 then
    bells[pool] = true -- this client is full and work is left: the next idle one is called
  end
  rates.quiet[pool] = #given < n
end
flush_moves()

return {
  again,
  rates.ms_until_due(),
  dirty_found(),
  deliver(given),
  settings.revision,
}
