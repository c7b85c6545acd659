-- Start-time fair queueing. Entering at max(virtual time, own last tag) brings neither credit nor debt from
-- the time away; a tag still ahead is never dropped, or a draining tenant would starve a backlogged one.
policies.fair = {
  lane_enters = function(vtime, last, _) return math.max(vtime, last or 0) end,
  lane_served = function(tag, cost, _) return tag + cost end,
  tenant_enters = function(vtime, last, _) return math.max(vtime, last or 0) end,
  tenant_served = function(tag, cost, _) return tag + cost end,
}
