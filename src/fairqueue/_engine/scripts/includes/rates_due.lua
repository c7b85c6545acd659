-- Groups whose next token has come: who waits there is woken, in at most so many of them. Nobody polls.
-- SHARES nothing
local MOST_RATED = 50

-- Returns whether others are left.
function rates.due()
  if not rates.any() then return false end
  local due = call('ZRANGEBYSCORE', k.rated, '-inf', int(now), 'LIMIT', 0, MOST_RATED)
  local groups = {}
  for _, group in ipairs(due) do
    if rates.of(group) then
      groups[group] = true
      rates.watch(group)
    else
      call('ZREM', k.rated, group)
    end
  end
  wake(groups)
  for group in pairs(groups) do wake_leftovers(group) end
  local left = #due == MOST_RATED or wakes >= most_wakes
  most_wakes = most_wakes + wakes
  return left
end

-- Ms until the first of what is due, a message or a token; -1: nothing is.
function rates.ms_until_due()
  local message = call('ZRANGE', k.delayed, 0, 0, 'WITHSCORES')[2]
  local token = rates.any() and call('ZRANGE', k.rated, 0, 0, 'WITHSCORES')[2]
  local first_at = math.min(tonumber(message or math.huge), tonumber(token or math.huge))
  return first_at < math.huge and math.max(0, math.min(first_at - now, LONGEST_MS)) or -1
end
