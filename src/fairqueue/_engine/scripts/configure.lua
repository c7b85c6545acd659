-- configure: settings have one owner, the server. What a client declares ('' means it declares nothing)
-- replaces what is stored when it differs; the change is remembered for the doctor, and the revision raised: by it a
-- client that runs knows that its settings are old. Repeated with the same call number it declares nothing again, and
-- a sending that arrives late is refused: others may have declared since.
-- ARGV schema now:int session stream callno by restore:int scheduler quantum limits retry max_attempts max_crashes
-- ARGV dead_letters
-- ROWS name default
-- REPLY the stored settings as a flat list, then the names that were changed
local US = '\31'
local call = redis.call

local is = call('TYPE', k.settings).ok
if is ~= 'hash' and is ~= 'none' then
  redis.log(redis.LOG_WARNING, 'fairqueue: ' .. k.settings .. ' held a ' .. is .. ', not a hash: removed')
  call('UNLINK', k.settings)
end
call('HLEN', k.limits) -- of another type they are a human's: refused before anything is written
local stored_schema = call('HGET', k.settings, 'schema')
if stored_schema and stored_schema ~= schema then
  return redis.error_reply('FQSCHEMA stored schema ' .. stored_schema .. ', this client speaks ' .. schema)
end
local time = call('TIME')
local server_now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
if now == 0 then now = server_now end

local function int(number) return string.format('%.0f', number) end

-- @include replay

local function answer(changed) return { call('HGETALL', k.settings), changed } end

local answered = recorded(REPLAY_MS)
if answered then
  local changed = {}
  for name in string.gmatch(answered, '[^,]+') do changed[#changed + 1] = name end
  return answer(changed)
end

local first_time = not stored_schema
if restore == 1 and not first_time then return answer({}) end
local changed, raised = {}, false

-- Before the first change: cut in between, clients learn the old settings once more, not never the new ones. Never a
-- number that was there before, though the settings be lost and declared anew: the server's time goes on.
local function raise_revision()
  if raised then return end
  local before = tonumber(string.match(call('HGET', k.settings, 'revision') or '', '^%d+$') or 0)
  if before >= 2 ^ 52 then before = 0 end -- damaged: from there no number goes on
  call('HSET', k.settings, 'revision', int(math.max(before + 1, server_now)))
  raised = true
end

local function declare(name, value, default)
  local stored = call('HGET', k.settings, name)
  if value == '' then value = stored or default end
  if stored == value then return false end
  raise_revision()
  call('HSET', k.settings, name, value)
  if first_time then return true end
  changed[#changed + 1] = name
  return true
end

local function replace_defaults()
  for _, field in ipairs(call('HKEYS', k.limits)) do
    if not string.find(field, US, 1, true) then call('HDEL', k.limits, field) end
  end
  for at = ROWS_AT, #ARGV, ROW do call('HSET', k.limits, ARGV[at], ARGV[at + 1]) end
end

-- Before the schema lets anybody else work. From 1, so that who counts from nothing knows that the counter was lost;
-- where messages have outlived settings and counters, from the clock.
if first_time then
  local begin = call('EXISTS', k.head) == 1 and int(now) or '1'
  local counters = call('TYPE', k.counters).ok
  if counters == 'hash' or counters == 'none' then -- of another type they are the doctor's, who starts as a client does
    for _, name in ipairs({ 'seq', 'claims', 'dead' }) do call('HSETNX', k.counters, name, begin) end
  end
end
declare('schema', schema, schema)
declare('shards', '1', '1')
if declare('scheduler', scheduler, 'fair') and not first_time then
  call('HSET', k.settings, 'to_retag', '1') -- it stays on record until a client has done so
end
if quantum ~= '' then declare('quantum', quantum) end
declare('retry', retry, '')
declare('max_attempts', max_attempts, '12')
declare('max_crashes', max_crashes, '5')
declare('dead_letters', dead_letters, '1')
if limits ~= '' and call('HGET', k.settings, 'limits') ~= limits then
  -- the text that names them is written last: cut before that, the client's next declaration does it all again
  raise_revision()
  replace_defaults()
  -- whoever waits and fits now is to be woken; this stays on record too
  if not first_time then call('HSET', k.settings, 'to_wake', '1') end
end
declare('limits', limits, '[]')
if #changed > 0 then
  call('HSET', k.settings, 'changed', table.concat(changed, ','), 'changed_by', by,
    'changed_at', int(now))
end
record(table.concat(changed, ','), REPLAY_MS)
return answer(changed)
