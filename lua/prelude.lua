-- What the scripts share; lua.go puts it before each of them.
--
-- Numbers are doubles, so everything here stays a whole number below 2^53 and becomes text by %d alone. Times are
-- microseconds since the Unix epoch. No key is touched that is not in KEYS.
--
-- An algorithm's file is one decision in two steps. "look" reads the state and works out what it is now; it ends with
-- fits, whether there is room for cost. "finish" writes if fits still stands, and ends with the reply. A script for
-- one decision runs one after the other; in take_all.lua all look before any finishes, and the names in the line that
-- begins "finish with" are carried over. Each step finds these locals: key, spec, cost, extra (nil for none), now,
-- passed (now as text if the caller's clock decides, else false), and reply, to be set.
--
-- A reply is an integer in the usual case, which each algorithm defines: text costs the server and the client more. Else
-- it is five numbers, separated by spaces: 1 if admitted or 0; the units taken; and the state after the decision as
-- ratelimit.Outcome has it: time relative to now, units, part (of a log: wait).
--
-- A read uses pcall, so that a key of another type counts as an unused one; any other error is raised by reading again.

local call, pcall, format, match, tonumber = redis.call, redis.pcall, string.format, string.match, tonumber

-- muldiv returns floor(a*b/c) and the rest, for whole a < 2^53, b <= 10^9, c < 2^45: where the product would not be
-- exact, b is taken six bits at a time.
local function muldiv(a, b, c)
  local product = a * b
  if product < 9007199254740992 then
    local rest = product % c
    return (product - rest) / c, rest
  end
  local rest = a % c
  local q, low, sum, scale = (a - rest) / c * b, 0, 0, 16777216
  for _ = 1, 5 do
    local lower = b % scale
    sum = sum * 64 + rest * ((b - lower) / scale)
    local left = sum % c
    low, sum, b, scale = low * 64 + (sum - left) / c, left, lower, scale / 64
  end
  return q + low, sum
end
