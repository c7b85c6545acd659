-- The end of a message that nobody runs: ready, delayed or dead. A lease record that a settle left of it which was cut
-- goes too, or reclaim would make the message anew from it; so does a slot that it has left. `record` is that of
-- the message, or false.
local function end_resting(mid, h, record)
  local lease = unpack_lease(record)
  if record then left_flight(mid) end
  if lease then
    free_slots(mid, lease.lane)
  elseif h.token ~= '' then
    free_slots(mid, h.lane, h.token)
  end
  make_gone(mid)
  unlist_later(mid, h)
end
