-- set_rate: the rate of one group: n deliveries per so many ms, `burst` at once after a pause; n 0 removes it. Tokens
-- that are there stay, up to the new burst. Whoever waits and may come in now is woken.
-- ARGV schema now:int session stream callno group n:int per:int burst:int revision
-- REPLY 1 if waiters are left for whom there is room (call again)
-- @include transition
-- @include replay
-- @include revision

local answered = recorded(REPLAY_MS)
if answered then return tonumber(answered) end
must_know(revision)

-- The parts of a millisecond are n-ths of the old rate: rounded up.
local function keep_arrivals()
  local known = rates.read(call('HGET', k.rates, group))
  local full_at, part = string.match(call('HGET', k.arrivals, group) or '', '^(%d+)\31(%d+)$')
  if not full_at or part == '0' or known == n then return end
  call('HSET', k.arrivals, group, int(tonumber(full_at) + 1) .. US .. '0')
end

if n > 0 then
  keep_arrivals()
  none_is_set = false
  call('HSET', k.rates, group, int(n) .. US .. int(per) .. US .. int(burst))
else
  call('HDEL', k.arrivals, group)
  call('HDEL', k.rates, group)
  call('ZREM', k.rated, group)
end
rates.of(group) -- of tokens owed to a slower rate those are forgotten that this one cannot owe
wake({ [group] = true })
wake_leftovers(group)
flush_moves()
local more = wakes >= most_wakes and 1 or 0
record(more, REPLAY_MS)
return more
