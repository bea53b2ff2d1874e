-- Take all: decisions on several keys and limits, of any algorithms, all or nothing.
--
-- KEYS[i]      the state of the i-th decision, each key once
-- ARGV[1]      now in microseconds; "" means the server's TIME
-- ARGV[2i]     the i-th spec; its ending tells the algorithm
-- ARGV[2i+1]   the i-th cost
-- ARGV[2n+1+i] the i-th extra, after all specs and costs; absent means 0 for all
-- Reply        the algorithms' own replies as text, separated by commas
-- State        as the algorithms' own scripts keep it
--
-- lua.go puts the steps of the algorithms in place of the lines that name them.

local n, all, saved = #KEYS, true, {}
local extras = ARGV[2 * n + 2]
for i = 1, n do
  local key, spec, cost, extra = KEYS[i], ARGV[2 * i], ARGV[2 * i + 1] + 0, extras and ARGV[2 * n + 1 + i] + 0
  local kind = string.byte(spec, -1)
  if kind == 103 then
    -- look sliding_log
  elseif kind == 110 then
    -- look sliding_counter
  else
    -- look token_bucket
  end
end
for i = 1, n do
  local reply, key, fits, state = nil, KEYS[i], all, saved[i]
  local kind, cost, extra = state[1], state[2], state[3]
  if kind == 103 then
    -- finish sliding_log
  elseif kind == 110 then
    -- finish sliding_counter
  else
    -- finish token_bucket
  end
  saved[i] = type(reply) == 'number' and format('%d', reply) or reply
end
return table.concat(saved, ',')
