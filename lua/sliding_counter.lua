-- Sliding counter: one decision on one key.
--
-- KEYS[1]  the counter
-- ARGV[1]  spec "period:rate:win", the period in microseconds
-- ARGV[2]  cost; 0 looks, below 0 gives back
-- ARGV[3]  now in microseconds; absent or "" means the server's TIME
-- ARGV[4]  extra: up to so many units more; absent means 0
-- Reply    an integer where just cost was taken, and that is above 0: microseconds since the window's start, times
--          rate + 1, plus the units that are spent. Else, and where that would pass 2^53, five numbers, see
--          prelude.lua: time is the start of the window relative to now, units the count of that window, part the
--          count of the one before
-- State    a hash of one field, named by the period: "start current previous", when the window starts, a multiple of
--          the period, its count, and the count of the one before. A key that does not exist is unused. A field of
--          another period is a limit that was changed.
-- TTL      set by the first write of each window to the end of the next one and a second

-- look at field, rate in (%d+):(%d+):win
local period = field + 0
rate = rate + 0
local start = now - now % period
local was, at, current, previous, replace, renew, healed = period
local got = pcall('HGET', key, field)
if got and not got.err then
  at, current, previous = match(got, '^(%d+) (%d+) (%d+)$')
elseif not got then -- no key, or another period
  local all = call('HGETALL', key)
  for i = 1, #all, 2 do
    replace = true
    if match(all[i], '^[1-9]%d*$') then
      was, at, current, previous = all[i] + 0, match(all[i + 1], '^(%d+) (%d+) (%d+)$')
    end
  end
else
  if not match(got.err, 'WRONGTYPE') then call('HGET', key, field) end
  replace = true
end
if at then
  at = at + 0
  current = current + 0
  previous = previous + 0
end
if at ~= start or replace or current > 1000000000 or previous > 1000000000 then -- not in the window of the last write
  local known = at and at < 9007199254740992 and at % was == 0 and current <= 1000000000 and previous <= 1000000000
  replace = replace or not known and got
  if known then
    local start = now - now % was
    renew = replace or start ~= at
    if start == at + was then
      at, previous, current = start, current, 0
    elseif start > at then
      at, current, previous = start, 0, 0
    elseif at - now > was + 60000000 then
      at, current, previous, healed = start, current + previous, 0, cost <= rate
      if current > 1000000000 then current = 1000000000 end
    end
  else
    was, at, current, previous, renew = period, start, 0, 0, true
  end
end
local share = 0 -- what the window before still counts for, rounded up
if previous > 0 then
  share = (was - (now > at and now - at or 0)) * previous
  local rest
  if share < 9007199254740992 then
    rest = share % was
    share = (share - rest) / was
  else
    -- muldiv
    share, rest = muldiv(was - (now > at and now - at or 0), previous, was)
  end
  if rest > 0 then share = share + 1 end
end
if was ~= period then
  at, current, previous, share = start, current + share, 0, 0
  if current > 1000000000 then current = 1000000000 end
end
local room = rate - current - share
if room < 0 then room = 0 end
local fits = cost <= room

-- finish
local taken = 0
if fits then
  if cost < 0 then
    local back = -cost < previous and -cost or previous
    previous, taken = previous - back, -back
    back = -cost - back < current and -cost - back or current
    current, taken = current - back, taken - back
  else
    taken = cost
    if extra then taken = extra < room - cost and cost + extra or room end
    current = current + taken
  end
end
if taken ~= 0 or healed then
  if replace then call('DEL', key) end
  call('HSET', key, field, format('%d %d %d', at, current, previous))
  if renew then
    local time = (at + 2 * period - now + 1000999) / 1000
    if passed and time < 60000 then time = 60000 end
    call('PEXPIRE', key, format('%d', time))
  end
end
reply = (now - at) * (rate + 1) + rate - room + taken
if not fits or taken ~= cost or cost <= 0 or now < at or reply >= 9007199254740992 then
  text = format('%d %d %d %d %d', fits and 1 or 0, taken, at - now, current, previous)
end
