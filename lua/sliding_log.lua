-- Sliding log: one decision on one key.
--
-- KEYS[1]  the log
-- ARGV[1]  spec "period:rate:log", the period in microseconds
-- ARGV[2]  cost; 0 looks, below 0 gives back the oldest units in the window
-- ARGV[3]  now in microseconds; absent or "" means the server's TIME
-- ARGV[4]  extra: up to so many units more; absent means 0
-- Reply    an integer where just cost was taken and the newest entry is of now: the units spent in the window. Else
--          five numbers, see prelude.lua: time is the newest entry's relative to now, units what is spent in the
--          window, and last the wait until cost fits
-- State    a list of pairs: time, running total. The first pair does not count: its total is what had been spent
--          before the second. Totals are modulo 2^23, well above the largest rate. Entries count while
--          time + period > now. A key that does not exist is unused.
-- TTL      set by each write to when the newest entry leaves the window and a second: the list does not tell under which
--          period it was last written

-- seek
-- seek returns the first pair from `first` on whose time is later than `after` and whose total is at least `sum` beyond
-- `from`, and the total of the pair before it, which is `base` for `first` itself. The newest pair is such a one. It
-- gallops from the head, where the answer nearly always is, then halves.
local function seek(key, first, base, after, sum, from)
  local call, format, tonumber = redis.call, string.format, tonumber -- dearer as upvalues, where it is not called
  local low, step, high = first - 1, 1, call('LLEN', key) / 2 - 1
  while high - low > 1 do
    local i = step and low + step or high
    if i >= high then i, step = (low + high - (low + high) % 2) / 2, nil end
    local pair = call('LRANGE', key, format('%d', 2 * i), format('%d', 2 * i + 1))
    local time, total = tonumber(pair[1]) or 0, tonumber(pair[2]) or 0
    if time > after and (total - from) % 8388608 >= sum then
      high, step = i, nil
    else
      low, base, step = i, total, step and 2 * step
    end
  end
  return high, base
end

-- look at period, rate in (%d+):(%d+):log
period, rate = period + 0, rate + 0
local tonumber = tonumber
local tail = pcall('LRANGE', key, '-2', '-1')
local replace = tail[1] and true
if tail.err then
  if not match(tail.err, 'WRONGTYPE') then call('LRANGE', key, '-2', '-1') end
  replace = true
end
local newest, total = tonumber(tail[1]), tonumber(tail[2])
local known = newest and total and newest >= 0 and newest < 9007199254740992 and total >= 0 and total < 8388608
local first, base, used, healed, head = 1, 0, 0, false, nil
if known then
  local after = (now > newest and now or newest) - period
  healed = newest - now > period + 60000000 and cost <= rate
  known = newest > after
  if known then
    head = call('LRANGE', key, '0', '5')
    base = tonumber(head[2])
    known = base and base >= 0 and base < 8388608
  end
  if known then
    if head[3] and not ((tonumber(head[3]) or 0) > after) then
      first, base = 2, tonumber(head[4]) or 0
      if not ((tonumber(head[5]) or 0) > after) then first, base = seek(key, 2, base, after, 0, 0) end
    end
    used = (total - base) % 8388608
  end
end
if not known then newest, total = 0, 0 end
local room = used < rate and rate - used or 0
local fits = cost <= room

-- finish
local taken, wait = 0, 0
if fits then
  taken = cost
  if cost < 0 then
    if -cost > used then taken = -used end
  elseif extra then
    taken = extra < room - cost and cost + extra or room
  end
elseif cost > room and cost <= rate then
  local needed = used + cost - rate
  if healed then
    wait = period
  elseif first == 1 and (head[4] - base) % 8388608 >= needed then
    wait = head[3] - now + period
  else
    local at = 2 * seek(key, first, base, -1, needed, base)
    wait = call('LRANGE', key, format('%d', at), format('%d', at))[1] - now + period
  end
end
if taken ~= 0 or healed then
  used = used + taken
  if healed or not known then
    if replace then call('DEL', key) end
    newest = now
    local stamp = format('%d', now)
    if used > 0 then call('RPUSH', key, stamp, '0', stamp, format('%d', used)) else call('RPUSH', key, stamp, '0') end
  elseif taken > 0 then
    if first > 1 then call('LTRIM', key, format('%d', 2 * first - 2), '-1') end
    total = (total + taken) % 8388608
    if newest >= now and used > taken then
      call('LSET', key, '-1', format('%d', total))
    else
      if now > newest then newest = now end
      call('RPUSH', key, format('%d', newest), format('%d', total))
    end
  elseif used == 0 then
    call('LTRIM', key, '-2', '-1')
  else
    local keep = seek(key, first, base, -1, 1 - taken, base)
    if keep > 1 then call('LTRIM', key, format('%d', 2 * keep - 2), '-1') end
    call('LSET', key, '1', format('%d', (base - taken) % 8388608))
  end
  local time = (newest + period - now + 1000999) / 1000
  if passed and time < 60000 then time = 60000 end
  call('PEXPIRE', key, format('%d', time))
end
reply = used
if not fits or taken ~= cost or newest ~= now then
  text = format('%d %d %d %d %d', fits and 1 or 0, taken, newest - now, used, wait)
end
