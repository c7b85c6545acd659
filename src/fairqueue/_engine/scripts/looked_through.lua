-- looked_through: a walk that mends has come to its end: what it was begun for is taken away, the sign that lists were
-- to be written again, or the marks of letters in doubt; not what scripts have given meanwhile.
-- ARGV schema now:int sign
-- ROWS mark
-- FLAGS allow-oom
-- REPLY how many
-- @include begin

local marks = {}
for at = ROWS_AT, #ARGV, ROW do marks[#marks + 1] = ARGV[at] end
many('SREM', k.doubtful, marks)
if sign ~= '' and call('HGET', k.settings, 'to_rebuild') == sign then call('HDEL', k.settings, 'to_rebuild') end
return #marks
