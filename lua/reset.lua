-- Forgets states. KEYS: the states. Reply: how many there were.

return redis.call('DEL', unpack(KEYS))
