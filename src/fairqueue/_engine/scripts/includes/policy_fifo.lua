-- The oldest message of the pool first, whoever's it is: tenants are ignored. It exists to be compared with. A tag is a
-- place in the order of acceptance.
local function place_of(oldest)
  if type(oldest) == 'function' then return oldest() end
  return oldest
end

policies.fifo = {
  enters = function(_, _, oldest) return place_of(oldest) end,
  -- a tag falls behind when the message it stands for ends elsewhere: it is moved up first
  waits = function(_, _, tag, _, oldest)
    local place = place_of(oldest)
    return place > tag and place or nil
  end,
  served = function(_, _, _, _, oldest) return place_of(oldest) end,
  leaves = leave,
  -- a message that comes back to its old place makes its lane older
  by_seq = true,
}
