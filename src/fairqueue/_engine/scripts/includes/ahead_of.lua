-- How many have their turn before somebody. The first of a scope are looked at; of those behind them the lists tell how
-- many there are.
-- SHARES nothing
local MOST_MEMBERS = 10

local function goes_before(one, other)
  if one.favoured ~= other.favoured then return one.favoured end
  if one.at ~= other.at then return one.at < other.at end
  if one.tag ~= other.tag then return one.tag < other.tag end
  return one.member < other.member
end

-- Does somebody stand before this turn that stands at the tag?
local function stands_before(member, tag, own) return tag < own.at or tag == own.at and member < own.member end

-- How many of a list by tags do. Who is on no place of it is looked for by halves.
local function place_in(list, own)
  if own.at ~= own.tag then
    local before = call('ZCOUNT', list, '-inf', '(' .. string.format('%.17g', own.at))
    return call('ZSCORE', list, own.member) and before - 1 or before -- it stands before where it is moved to
  end
  local rank = call('ZRANK', list, own.member)
  if rank then return rank end
  local from, to = 0, call('ZCARD', list)
  while from < to do
    local middle = math.floor((from + to) / 2)
    local one = call('ZRANGE', list, middle, middle, 'WITHSCORES')
    if stands_before(one[1], tonumber(one[2]), own) then from = middle + 1 else to = middle end
  end
  return from
end

-- Of those who go first all are before one that does not, wherever they stand: beside the ring those behind it count.
local function counts_as_it_stands(one, own)
  if own.favoured then return one.listed and stands_before(one.member, one.listed, own) end
  return one.listed or stands_before(one.member, one.tag, own)
end

local function all_as_they_stand(scope, own)
  if own.favoured then return place_in(k.below(scope), own) end
  local count = place_in(k.ring(scope), own)
  if not ahead.has_below(scope) then return count end
  return count + call('ZCARD', k.below(scope)) - place_in(k.below(scope), own) - (own.listed and 1 or 0)
end

-- How many are before it that nobody looked at. What stands in `below` may be old, or stand in no ring: no more than
-- take turns.
local function unseen(scope, own, seen)
  local others = call('ZCARD', k.ring(scope)) - 1 - #seen
  if others <= 0 then return 0 end
  local count = all_as_they_stand(scope, own)
  for _, one in ipairs(seen) do
    if counts_as_it_stands(one, own) then count = count - 1 end
  end
  return math.max(0, math.min(count, others))
end

-- The first of those who stand in the lists of a scope, each once.
local function first_ones(scope, own)
  local seen, met = {}, { [own.member] = true }
  local function look(list)
    for _, member in ipairs(call('ZRANGE', list, 0, MOST_MEMBERS - 1)) do
      local one = not met[member] and ahead.turn_in(scope, member)
      met[member] = true
      if one then seen[#seen + 1] = one end
    end
  end
  if ahead.has_below(scope) then look(k.below(scope)) end
  look(k.ring(scope))
  return seen
end

-- How many have their turn before this member of a scope, and the names of the first; nil: it takes no turns there.
function ahead.of(scope, member, most_named)
  local own = ahead.turn_in(scope, member)
  if not own then return nil, {} end
  local seen, before, names = first_ones(scope, own), {}, {}
  for _, one in ipairs(seen) do
    if one.comes and goes_before(one, own) then before[#before + 1] = one end
  end
  table.sort(before, goes_before)
  for i = 1, math.min(#before, most_named) do names[i] = before[i].member end
  return #before + unseen(scope, own, seen), names
end
