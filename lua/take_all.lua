-- Take all: decisions on several keys and limits, of any algorithms, all or nothing.
--
-- KEYS[i]      the state of the i-th decision, each key once
-- ARGV[1]      now in microseconds; "" means the server's TIME
-- ARGV[2i]     the i-th spec; its ending tells the algorithm
-- ARGV[2i+1]   the i-th cost
-- ARGV[2n+1+i] the i-th extra, after all specs and costs; absent means 0 for all
-- Reply        the algorithms' own replies as text, separated by commas
-- State        as the algorithms' own scripts keep it

local passed = ARGV[1] ~= '' and ARGV[1]
local now, n, all = clock(passed), #KEYS, true
local looked, finish = {}, {}
for i = 1, n do
  local spec, look = ARGV[2 * i], nil
  local kind = string.byte(spec, -1)
  if kind == 103 then
    look, finish[i] = look_log, finish_log
  elseif kind == 110 then
    look, finish[i] = look_counter, finish_counter
  else
    look, finish[i] = look_bucket, finish_bucket
  end
  looked[i] = { look(KEYS[i], spec, tonumber(ARGV[2 * i + 1]), tonumber(ARGV[2 * n + 1 + i] or 0), now, passed) }
  all = all and looked[i][1]
end
for i = 1, n do
  looked[i][1] = all
  local reply = finish[i](unpack(looked[i], 1, 18))
  looked[i] = type(reply) == 'number' and format('%d', reply) or reply
end
return table.concat(looked, ',')
