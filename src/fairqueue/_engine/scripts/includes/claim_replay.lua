-- What this stream's last claim took and nobody settled: the same call gets it again (extended anew), at most
-- n of it, and the next call gets the rest first. A record line is "token US mid"; the first number says how
-- many of the lines were handed over.
-- SHARES claim_record replay_claim
local function still_held(lines)
  local leases = {}
  for token, mid in string.gmatch(lines, '([^\31\n]+)\31([^\n]+)') do
    local h = unpack_header(call('HGET', k.head, mid))
    local lease = unpack_lease(call('HGET', k.leases, mid))
    if h and lease and lease.token == token and h.token == token and h.state == 'f' then
      leases[#leases + 1] = { mid = mid, token = token, header = pack_header(h) }
    end
  end
  return leases
end

-- Where the line after the first `skip` ones begins.
local function after_lines(lines, skip)
  local from = 1
  for _ = 1, skip do from = (string.find(lines, '\n', from, true) or #lines) + 1 end
  return from
end

local function claim_record(given, rest)
  local lines = {}
  for _, lease in ipairs(given) do lines[#lines + 1] = lease.token .. US .. lease.mid end
  for _, lease in ipairs(rest) do lines[#lines + 1] = lease.token .. US .. lease.mid end
  record(#given .. '\n' .. table.concat(lines, '\n'), visibility * 2 + 60000)
end

-- Returns the leases handed over now, those kept for the next call, and whether this call had been made before. Of
-- one that holds nothing any more there is nothing to repeat: it looks anew, or ready work would wait.
local function replay_claim()
  local stored, repeated = last_call()
  if not stored then return {}, {}, false end
  local handed, lines = string.match(stored, '^(%d+)\n(.*)$')
  local from = repeated and 1 or after_lines(lines, tonumber(handed))
  local given, rest = {}, {}
  for _, lease in ipairs(still_held(string.sub(lines, from))) do
    local to = #given < n and given or rest
    to[#to + 1] = lease
    if to == given then call('ZADD', k.deadlines, int(now + visibility), lease.mid) end
  end
  if repeated then claim_record(given, rest) end
  return given, rest, repeated and #given > 0
end
