-- mend_settings: fields of the settings that cannot be read get another value, unless somebody has declared them
-- meanwhile. Clients learn it by the revision, which is raised first.
-- ARGV schema now:int
-- ROWS name was becomes
-- FLAGS allow-oom
-- REPLY how many
-- @include begin

local changed = 0
for at = ROWS_AT, #ARGV, ROW do
  local name, was, becomes = unpack(ARGV, at, at + ROW - 1)
  if call('HGET', k.settings, name) == was then
    local before = tonumber(settings.revision) or 0
    if before >= 2 ^ 52 then before = 0 end
    call('HSET', k.settings, 'revision', int(math.max(before + 1, now)))
    -- by tags of another policy some would starve; it stays on record until a client has made them anew
    if name == 'scheduler' then call('HSET', k.settings, 'to_retag', '1') end
    call('HSET', k.settings, name, becomes)
    changed = changed + 1
  end
end
return changed
