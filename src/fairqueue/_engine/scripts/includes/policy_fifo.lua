-- The oldest message of the pool first, whoever's it is: tenants are ignored. It exists to be compared with.
policies.fifo = {
  lane_enters = function(_, _, seq) return seq end,
  lane_served = function(_, _, next_seq) return next_seq end,
  tenant_enters = function(_, _, least) return least() end,
  tenant_served = function(_, _, least) return least() end,
  -- a message that comes back to its old place makes its lane older
  by_seq = true,
}
