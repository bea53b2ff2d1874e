-- What the scripts share. lua.go puts this file before each of them.
--
-- Numbers are doubles, so everything here stays a whole number below 2^53 and becomes text by %d alone. Times are
-- microseconds since the Unix epoch. No key is touched that is not in KEYS.
--
-- Each algorithm is two functions. look_x(key, spec, cost, extra, now, passed) reads the state and works out what it
-- is now; its first result tells whether cost fits. finish_x takes all results of look_x, writes if it is told that
-- the cost fits, and returns the reply. Between the two, take_all.lua has its say.
--
-- A reply is five numbers, separated by spaces: 1 if admitted or 0; the units taken; and the state after the decision
-- as ratelimit.Outcome has it: time relative to now, units, part (of a log: wait).

local tonumber, format, match, floor, ceil = tonumber, string.format, string.match, math.floor, math.ceil
local call, pcall = redis.call, redis.pcall
local SECOND, MINUTE, AGE = 1000000, 60000000, 1576800000000000 -- AGE: 50 years, no key needs to live longer

-- clock returns the server's time, or the caller's where that is passed in.
local function clock(passed)
  if passed then return tonumber(passed) end
  local t = call('TIME')
  return t[1] * 1000000 + t[2]
end

-- whole tells whether a number read from a key is one that this library could have written.
local function whole(n, most) return n and n >= 0 and n <= most and n % 1 == 0 end

-- unusable tells whether a read failed because the key is of another type, which counts as an unused key. Any other
-- error ends the script: the same read raises it.
local function unusable(got, ...)
  if not got.err then return false end
  if string.find(got.err, 'WRONGTYPE', 1, true) then return true end
  call(...)
end

-- muldiv returns floor(a*b/c) and the rest, for whole a < 2^53, b <= 10^9, c < 2^45: b is taken six bits at a time where
-- the product would not be exact.
local function muldiv(a, b, c)
  local product = a * b
  if product < 9007199254740992 then
    local rest = product % c
    return (product - rest) / c, rest
  end
  local rest = a % c
  local q = (a - rest) / c * b
  local low, sum, scale = 0, 0, 16777216
  for _ = 1, 5 do
    local digit = floor(b / scale)
    b, scale = b - digit * scale, scale / 64
    sum = sum * 64 + rest * digit
    local r = sum % c
    low, sum = low * 64 + (sum - r) / c, r
  end
  return q + low, sum
end

-- expire lets the key live for so many microseconds and a second more, for clocks that disagree. Where the caller's
-- clock decides, the server's may run ahead of it, so the key lives a minute at least.
local function expire(key, time, passed)
  local ms = ceil((time < AGE and time or AGE) / 1000) + 1000
  if passed and ms < 60000 then ms = 60000 end
  call('PEXPIRE', key, format('%d', ms))
end
