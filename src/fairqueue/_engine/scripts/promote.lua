-- promote: moves what is due to its lane, at most `limit`; claims do the same on their way.
-- ARGV schema now:int limit:int
-- FLAGS allow-oom
-- REPLY how many were looked at
-- @include transition
-- @include promote_due

local promoted = promote_due(limit)
flush_moves()
return promoted
