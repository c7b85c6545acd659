-- totals: the counters of the namespace; nothing is written.
-- ARGV schema now:int
-- FLAGS no-writes,allow-oom
-- REPLY counters, messages present, pools with ready work, now
-- @include begin

return { call('HGETALL', k.totals), call('HLEN', k.head), call('SMEMBERS', k.pools), int(now) }
