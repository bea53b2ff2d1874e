-- Stands in the place of each line "-- muldiv", which is where it is needed and nowhere else, for in Redis a function
-- costs more to create than to call.
--
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
