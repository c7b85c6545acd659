-- ring_bell: a client that took the bell's token and will not claim gives it back.
-- ARGV schema now:int
-- ROWS pool
-- FLAGS allow-oom
-- @include begin
-- @include bell

for at = ROWS_AT, #ARGV, ROW do
  if call('EXISTS', k.ring('p' .. US .. ARGV[at])) == 1 then bells[ARGV[at]] = true end
end
ring_bells()
return 1
