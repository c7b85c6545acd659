-- Rates: how many deliveries of a group may begin in a time, by the generic cell rate algorithm. A group that was left
-- alone has `burst` tokens, and one more comes each per / n; a delivery takes one. Kept is the instant at which all are
-- there again, in whole milliseconds and n-ths of one: what a bucket owes until then is counted in n-ths of a
-- millisecond, `per` for each token, so that nothing is ever rounded. A token that comes is promised like a slot.
-- @include seldom
-- SHARES rates
local rates = {
  quiet = {}, -- pools whose bell is not rung for a token that comes before all others: this client sets its own timer
}
local any -- does any group have a rate? Unknown until somebody asks
local buckets, changed, watched = {}, {}, {}

local LARGEST = 2 ^ 52

-- n, per (ms) and burst as stored, if that is a rate.
function rates.read(text)
  local n, per, burst = string.match(text or '', '^(%d+)\31(%d+)\31(%d+)$')
  n, per, burst = count_in(n), count_in(per), count_in(burst)
  if not (n and per and burst) or math.min(n, per, burst) == 0 then return nil end
  if (burst + 1) * per + n < LARGEST then return n, per, burst end
end

-- A rate that cannot be read (somebody's hand) has no tokens: nobody knows what it was, and no rate would be worse.
local UNREADABLE = { n = 0, per = 0, burst = 0, debt = 0 }

local function bucket_as_stored(group)
  local text = try('HGET', k.rates, group)
  if not text then return false end
  local n, per, burst = rates.read(not failed(text) and text or '')
  if not n then return UNREADABLE end
  local full_at, part = string.match(call('HGET', k.arrivals, group) or '', '^(%d+)\31(%d+)$')
  local debt = full_at and (tonumber(full_at) - now) * n + tonumber(part) or 0
  -- Tokens come between two milliseconds, and are taken at the next one. What they are late by, always less than one,
  -- is not lost: the next comes by when this one came, or 700 a second would be 500.
  if debt <= -n then debt = 0 end
  -- No delivery can have brought it there: it was damaged, or the server's clock was set back. Written again, or the
  -- group would stand still until then.
  changed[group] = debt > burst * per or nil
  return { n = n, per = per, burst = burst, debt = math.min(debt, burst * per) }
end

-- A claim refuses what is of another type by name. Scripts that only wake go on: it holds no rate that can be read.
function rates.must_be_readable() any = not none_is_set and call('HLEN', k.rates) > 0 end

function rates.any()
  if any == nil then any = not none_is_set and try('HLEN', k.rates) ~= 0 end
  return any
end

-- The group's bucket; false where it has no rate.
function rates.of(group)
  if buckets[group] == nil then buckets[group] = rates.any() and bucket_as_stored(group) end
  return buckets[group]
end

local function divided_up(number, by)
  local rest = math.fmod(number, by)
  return (number - rest) / by + (rest > 0 and 1 or 0)
end

-- How many tokens are there, those included that were promised to lanes that have not come yet.
function rates.tokens(group)
  local bucket = rates.of(group)
  if not bucket then return math.huge end
  return bucket.burst - (bucket.n > 0 and divided_up(bucket.debt, bucket.per) or 0)
end

-- The instant at which there will be so many tokens; nil: never.
function rates.instant_of(bucket, tokens)
  if tokens > bucket.burst then return nil end
  local ahead = bucket.debt - (bucket.burst - tokens) * bucket.per
  return ahead > 0 and now + divided_up(ahead, bucket.n) or now
end

-- How many more may come in, those included who were promised it; nil where the group cannot be counted.
function rates.room(group)
  local held, limit = held_in(group), limit_of(group)
  return held and math.min(limit and limit - held or math.huge, rates.tokens(group))
end

-- A delivery takes a token; false where the group has no rate.
function rates.spend(group)
  local bucket = rates.of(group)
  if not bucket then return false end
  bucket.debt, changed[group] = bucket.debt + bucket.per, true
  return true
end

-- A delivery that nobody began has its tokens back, as far as there is room for them. Written by `finish`, when its
-- lease is gone: a settle that was cut and is sent again gives none back twice.
function rates.give_back(lane)
  for _, group in ipairs(lane.groups) do
    local bucket = rates.of(group)
    if bucket then
      bucket.debt, changed[group] = math.max(bucket.debt - bucket.per, math.min(bucket.debt, 0)), bucket.n > 0 or nil
    end
  end
end

-- Writes what was taken. Before any delivery: cut in between, a token would have been taken twice.
function rates.save()
  local entries = {}
  for group in pairs(changed) do
    local bucket = buckets[group]
    local part = math.fmod(math.fmod(bucket.debt, bucket.n) + bucket.n, bucket.n)
    entries[#entries + 1] = group
    entries[#entries + 1] = int(now + (bucket.debt - part) / bucket.n) .. US .. int(part)
  end
  many('HSET', k.arrivals, entries)
  changed = {}
end

-- Somebody waits at the group, was woken there, or left: the end of the script tells when it is to be woken next.
function rates.watch(group)
  if watched[group] == nil and rates.of(group) then
    watched[group] = tonumber(call('ZSCORE', k.rated, group)) or math.huge
  end
end

-- Somebody is about to wait at the group. Written first: cut in between, nobody would come for it with the token.
function rates.expect(group)
  rates.watch(group)
  local at = watched[group] and rates.instant_of(rates.of(group), 1)
  if at then call('ZADD', k.rated, 'LT', int(at), group) end
end

-- Of the pools in which somebody waits at the group, and the fewest that were woken in one of them.
local function waiters_of(group)
  local pools, least = {}, nil
  for _, pool in ipairs(call('SMEMBERS', k.waiters(group))) do
    if call('EXISTS', k.ring(group_scope(pool, group))) == 1 then
      pools[#pools + 1] = pool
      least = math.min(least or math.huge, call('HLEN', woken_key(pool, group)))
    end
  end
  return pools, least
end

-- When the next token comes that was not promised to anybody yet; nil: it is not a token that is waited for. Of those
-- there is room for already, this script could not wake all: the next one does.
local function next_wake(group, promised)
  if not promised or dirty_state(group) then return nil end
  if rates.tokens(group) <= promised then return rates.instant_of(rates.of(group), promised + 1) end
  return (rates.room(group) or 0) > promised and now or nil
end

local function wake_later(group, before)
  local pools, promised = waiters_of(group)
  local at = next_wake(group, promised)
  if not at then return call('ZREM', k.rated, group) end
  call('ZADD', k.rated, int(at), group)
  if at >= before or call('ZRANK', k.rated, group) > 0 then return end
  -- before all others: whoever idles sets its timer anew
  for _, pool in ipairs(pools) do bells[pool] = bells[pool] or not rates.quiet[pool] or nil end
end

function rates.finish()
  rates.save()
  for group, before in pairs(watched) do wake_later(group, before) end
  watched = {}
end
