-- Forgets states. KEYS: the states. Reply: how many there were.

return call('DEL', unpack(KEYS))
