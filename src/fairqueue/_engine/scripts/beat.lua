-- beat: a worker's sign of life; with empty info it says goodbye. Workers silent for too long are forgotten.
-- ARGV schema now:int worker info silence:int
-- FLAGS allow-oom
-- @include begin

if info == '' then
  call('ZREM', k.workers, worker)
  call('HDEL', k.worker_info, worker)
else
  call('ZADD', k.workers, int(now), worker)
  call('HSET', k.worker_info, worker, info)
end
local silent = call('ZRANGEBYSCORE', k.workers, '-inf', int(now - silence), 'LIMIT', 0, 100)
many('ZREM', k.workers, silent)
many('HDEL', k.worker_info, silent)
return #silent
