-- What every script does first: refuse before it writes when the namespace speaks another schema, and fix
-- the instant it works at (the server's clock; a test's clock replaces it).
local US = '\31'
-- SHARES try other_type count_in own_sign to_be_rebuilt call settings int failed CHUNK many get_many
local try = redis.pcall

-- The type that a key holds instead of the one it should; nil when there is nothing wrong with it.
local function other_type(key, wanted)
  local is = redis.call('TYPE', key).ok
  if is ~= wanted and is ~= 'none' then return is end
end

-- What a counter's field says; nil where it is no whole number that can be counted on from.
local function count_in(text)
  local whole = text == '0' or string.match(text or '', '^%-?[1-9]%d*$')
  return whole and #text <= 15 and tonumber(text) or nil
end

-- A counter that is no number any more must not stop those who are at work, half way through their writes: one that
-- gives out numbers goes on from the clock, which is ahead of all it gave out, the others begin anew.
local function counted_anew(refusal, key, field, by)
  local stored = try('HGET', key, field)
  if type(stored) ~= 'string' or count_in(stored) then error(refusal) end
  redis.call('HSET', key, field, string.format('%.0f', key == k.counters and now or 0))
  return redis.call('HINCRBY', key, field, by)
end

-- A sign of this script alone: scripts run one after another, so no two have the same instant. By the server's clock,
-- whatever is counted or lost: a sign that came again could be taken away for another.
local function own_sign()
  local at = redis.call('TIME')
  return at[1] .. '.' .. at[2]
end

-- Lists must be written again from the messages: reconcile is told, and no walk that began before takes the sign away.
local function to_be_rebuilt() redis.call('HSET', k.settings, 'to_rebuild', own_sign()) end

-- An index that holds another type (somebody's hand) must stop nobody but who is in it. It can be written again from
-- the messages: it is removed, and reconcile is told; for who only reads it is empty. Everything else of a wrong type
-- is the doctor's.
local function mended(refusal, command, key, ...)
  local kind = string.match(key, '^([%l_]+)', #root + 1)
  local wanted = kind and string.match(INDEXES, ' ' .. kind .. '=(%l+)')
  local is = wanted and other_type(key, wanted)
  if not is and command == 'HINCRBY' then return counted_anew(refusal, key, ...) end
  if not is then error(refusal) end
  if READ_ONLY then return redis.call(command, root .. 'none', ...) end
  redis.log(redis.LOG_WARNING, 'fairqueue: ' .. key .. ' held a ' .. is .. ', not a ' .. wanted .. ': removed')
  to_be_rebuilt() -- first: what is removed and not told of would stay away
  redis.call('UNLINK', key)
  try('HINCRBY', k.totals, 'healed', 1)
  return redis.call(command, key, ...)
end

local function call(command, key, ...)
  local reply = try(command, key, ...)
  if type(reply) == 'table' and reply.err then return mended(reply, command, key, ...) end
  return reply
end

-- Settings of another type are lost: the next client that learns so gives back what it knew of them.
local as_stored = try('HMGET', k.settings, 'schema', 'scheduler', 'max_attempts', 'max_crashes', 'dead_letters',
  'revision', 'guarantees', 'quantum')
if as_stored.err then as_stored = {} end
local settings = {
  schema = as_stored[1], scheduler = as_stored[2],
  max_attempts = tonumber(as_stored[3]) and as_stored[3] or '12', -- damaged: the default
  max_crashes = tonumber(as_stored[4]) and as_stored[4] or '5',
  dead_letters = as_stored[5],
  guarantees = as_stored[7] == '1', -- somebody has one
  quantum = tonumber(as_stored[8]), -- of "drr"
  revision = as_stored[6] ~= '' and as_stored[6] or '0', -- stored by a version that did not count them, or damaged
}
if not settings.schema then return redis.error_reply('FQUNCONFIGURED no settings are stored under this name') end
if settings.schema ~= schema then
  return redis.error_reply('FQSCHEMA stored schema ' .. settings.schema .. ', this client speaks ' .. schema)
end

if now == 0 then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

-- Lua would write large integers as floats. The same instants are written again and again.
local int
do
  local integers = {}
  function int(number)
    local text = integers[number]
    if not text then
      text = string.format('%.0f', number)
      integers[number] = text
    end
    return text
  end
end

-- A pcall's error reply, or nil.
local function failed(reply)
  if type(reply) == 'table' and reply.err then return reply.err end
end

-- Runs a variadic command over any number of values, well below the stack limit of unpack.
local CHUNK = 1000
local function many(command, key, values)
  for from = 1, #values, CHUNK do
    call(command, key, unpack(values, from, math.min(from + CHUNK - 1, #values)))
  end
end

-- HMGET over any number of fields.
local function get_many(key, fields)
  local values = {}
  for from = 1, #fields, CHUNK do
    local part = call('HMGET', key, unpack(fields, from, math.min(from + CHUNK - 1, #fields)))
    for i = 1, #part do values[from + i - 1] = part[i] end
  end
  return values
end
