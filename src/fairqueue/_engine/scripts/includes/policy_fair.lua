-- Start-time fair queueing. Entering at max(virtual time, own last tag) brings neither credit nor debt from
-- the time away; a tag still ahead is never dropped, or a draining tenant would starve a backlogged one.
policies.fair = {
  enters = function(scope, last, _) return math.max(clock(scope), last or 0) end,
  waits = function() return nil end,
  served = function(_, _, tag, charge, _) return tag + charge end,
  leaves = leave,
}
