-- At most one token a pool: whoever idles there wakes and claims. A bell that cannot be rung (its key holds
-- another type) costs at most the second after which idle workers look by themselves.
local bells = {}

local function ring_bells()
  for pool in pairs(bells) do
    if try('EXISTS', k.bell(pool)) == 0 then try('RPUSH', k.bell(pool), '1') end
  end
end
