-- A call whose reply was lost is sent again with the same session, stream and number, and is recognised here. One
-- record a stream, for its last call; it expires (longer than any lease it speaks of). `callno` also counts the
-- sendings of a call: "7.0", then "7.1". The network may bring one long after its client hung up, sent it again and
-- went on to other calls: nobody listens to it any more, and it is refused if a later sending is recorded. So a call
-- that was sent again is recorded even if it did nothing.
local REPLAY_MS = 120000 -- how long an operator's call is recognised; far longer than a client repeats it
local this_call = { key = k.call(session .. US .. stream) }
this_call.number, this_call.sending = string.match(callno, '^(%d+)%.(%d+)$')
this_call.again = this_call.sending ~= '0'

-- What is recorded of the stream's last call, and whether that is this one.
local function last_call()
  local stored = redis.pcall('GET', this_call.key)
  if type(stored) ~= 'string' then return nil, false end -- none, or of a wrong type: the next record replaces it
  local number, sending, text = string.match(stored, '^(%d+)%.(%d+)\n(.*)$')
  if not number then return nil, false end
  local ahead = tonumber(number) - tonumber(this_call.number)
  if ahead > 0 or ahead == 0 and tonumber(sending) > tonumber(this_call.sending) then
    error({ err = 'FQOVERTAKEN this call was sent again, and answered, before it arrived' })
  end
  return text, ahead == 0
end

local function record(text, ttl_ms) call('SET', this_call.key, callno .. '\n' .. text, 'PX', int(ttl_ms)) end

-- The answer to this call, if it has been made before.
local function recorded(ttl_ms)
  local text, made = last_call()
  if not made then return nil end
  record(text, ttl_ms)
  return text
end
