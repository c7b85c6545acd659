-- What every script does first: refuse before it writes when the namespace speaks another schema, and fix
-- the instant it works at (the server's clock; a test's clock replaces it).
local US = '\31'
local call, try = redis.call, redis.pcall

local as_stored = call('HMGET', k.settings, 'schema', 'scheduler', 'max_attempts', 'max_crashes', 'dead_letters')
local settings = {
  schema = as_stored[1], scheduler = as_stored[2],
  max_attempts = as_stored[3], max_crashes = as_stored[4], dead_letters = as_stored[5],
}
if not settings.schema then return redis.error_reply('FQUNCONFIGURED no settings are stored under this name') end
if settings.schema ~= schema then
  return redis.error_reply('FQSCHEMA stored schema ' .. settings.schema .. ', this client speaks ' .. schema)
end

if now == 0 then
  local time = call('TIME')
  now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end

-- Lua would write large integers as floats. The same instants are written again and again.
local integers = {}
local function int(number)
  local text = integers[number]
  if not text then
    text = string.format('%.0f', number)
    integers[number] = text
  end
  return text
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
