-- Sliding log: one decision on one key.
--
-- KEYS[1]  the log
-- ARGV[1]  spec "period:rate:log", the period in microseconds
-- ARGV[2]  cost; 0 looks, below 0 gives back the oldest units in the window
-- ARGV[3]  now in microseconds; absent or "" means the server's TIME
-- ARGV[4]  extra: up to so many units more; absent means 0
-- Reply    five numbers, see prelude.lua: time is the newest entry's relative to now, units what is spent in the
--          window, and last the wait until cost fits
-- State    a list of pairs: time, running total. The first pair does not count: its total is what had been spent
--          before the second. Totals are modulo 2^23, well above the largest rate. Entries count while
--          time + period > now. A key that does not exist is unused.

local MOD = 8388608

-- pair reads the i-th pair, counted from 0.
local function pair(key, i)
  local got = call('LRANGE', key, format('%d', 2 * i), format('%d', 2 * i + 1))
  return tonumber(got[1]) or 0, tonumber(got[2]) or 0
end

-- seek returns the first pair from `first` on that wanted(time, total) is true for, and the total of the pair before
-- it, which is `base` for `first` itself. Wanted is true from some pair on, for the newest at the latest. It gallops
-- from the head, where the answer nearly always is, then halves.
local function seek(key, first, base, wanted)
  local low, step = first - 1, 1
  local high = call('LLEN', key) / 2 - 1
  while low + step < high do
    local time, total = pair(key, low + step)
    if wanted(time, total) then
      high = low + step
    else
      low, base, step = low + step, total, step * 2
    end
  end
  while high - low > 1 do
    local middle = floor((low + high) / 2)
    local time, total = pair(key, middle)
    if wanted(time, total) then high = middle else low, base = middle, total end
  end
  return high, base
end

local function look_log(key, spec, cost, extra, now, passed)
  local period, rate = match(spec, '(%d+):(%d+)')
  period, rate = tonumber(period), tonumber(rate)
  local tail = pcall('LRANGE', key, '-2', '-1')
  local replace = unusable(tail, 'LRANGE', key, '-2', '-1')
  local newest, total = tonumber(tail[1]), tonumber(tail[2])
  local known = whole(newest, 9007199254740991) and whole(total, MOD - 1)
  local after, first, base, used, healed = now - period, 1, 0, 0, false
  if known then
    if newest > now then after = newest - period end
    healed = newest - now > period + MINUTE
    local head = call('LRANGE', key, '0', '2')
    base = tonumber(head[2])
    known = newest > after and whole(base, MOD - 1)
    if known then
      if head[3] and (tonumber(head[3]) or 0) <= after then
        first, base = seek(key, 1, base, function(time) return time > after end)
      end
      used = (total - base) % MOD
    end
  end
  if not known then newest, total, replace = 0, 0, replace or #tail > 0 end
  return cost <= (used < rate and rate - used or 0), key, cost, extra, now, passed, period, rate, known, newest, total,
    first, base, used, healed, replace
end

-- give_back takes the oldest units out of the window by raising the total that does not count.
local function give_back(key, first, base, used, back)
  if back == used then
    call('LTRIM', key, '-2', '-1')
    return
  end
  local keep = seek(key, first, base, function(_, total) return (total - base) % MOD > back end)
  if keep > 1 then call('LTRIM', key, format('%d', 2 * keep - 2), '-1') end
  call('LSET', key, '1', format('%d', (base + back) % MOD))
end

local function finish_log(fits, key, cost, extra, now, passed, period, rate, known, newest, total, first, base, used, healed, replace)
  local taken, wait = 0, 0
  if fits then
    taken = cost
    if cost < 0 then
      if -cost > used then taken = -used end
    elseif extra > 0 then
      local room = used < rate and rate - used or 0
      taken = cost + (extra < room - cost and extra or room - cost)
    end
  elseif healed then
    wait = period
  elseif cost <= rate and used + cost > rate then
    local needed = used + cost - rate
    local last = seek(key, first, base, function(_, sum) return (sum - base) % MOD >= needed end)
    wait = pair(key, last) + period - now
  end
  if healed or (taken > 0 and not known) then
    used = used + taken
    newest = now
    if replace or known then call('DEL', key) end
    local time = format('%d', now)
    if used > 0 then call('RPUSH', key, time, '0', time, format('%d', used)) else call('RPUSH', key, time, '0') end
    expire(key, period, passed)
  elseif taken < 0 then
    give_back(key, first, base, used, -taken)
    used = used + taken
    expire(key, newest + period - now, passed)
  elseif taken > 0 then
    if first > 1 then call('LTRIM', key, format('%d', 2 * first - 2), '-1') end
    local sum = format('%d', (total + taken) % MOD)
    if newest >= now and used > 0 then
      call('LSET', key, '-1', sum)
    else
      if now > newest then newest = now end
      call('RPUSH', key, format('%d', newest), sum)
    end
    used = used + taken
    expire(key, newest + period - now, passed)
  end
  return format('%d %d %d %d %d', fits and 1 or 0, taken, newest - now, used, wait)
end
