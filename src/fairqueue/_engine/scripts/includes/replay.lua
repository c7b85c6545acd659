-- A call whose reply was lost is repeated with the same session, stream and number, and is recognised here. One
-- record a stream, for its last call; it expires (longer than any lease it speaks of).
local REPLAY_MS = 120000 -- how long an operator's call is recognised; far longer than a client repeats it
local call_key = k.call(session .. US .. stream)

local function recorded()
  local record = call('GET', call_key)
  if not record then return nil end
  local number, rest = string.match(record, '^(%d+)\n(.*)$')
  if number == callno then return rest end
  return nil
end

local function record(text, ttl_ms) call('SET', call_key, callno .. '\n' .. text, 'PX', int(ttl_ms)) end
