-- What nobody can write again must hold what it should before anything is written: a script that ended half way would
-- leave a message neither here nor there, or a delivery that nobody got. Refused as a whole, it is safe to repeat.
-- The headers are not among these: what a script moves it has read them of, before its first write.
for _, key in ipairs({ k.body, k.counters, k.limits }) do call('HLEN', key) end
