package redishooks

import (
	"strconv"
	"strings"
	"testing"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/storetest"
)

// foreign are the values that another program could have left at a key, made by one command with the key after its name.
var foreign = []struct {
	name    string
	command []string
}{
	{"a text", []string{"SET", "x"}},
	{"an empty text", []string{"SET", ""}},
	{"a number below 0", []string{"SET", "-7637260132274145208"}},
	{"a list", []string{"RPUSH", "x", "y"}},
	{"a list of one", []string{"RPUSH", "1"}},
	{"a list of numbers too large", []string{"RPUSH", "1e400", "0", "1e400", "9007199254740993"}},
	{"a set", []string{"SADD", "x"}},
	{"a sorted set", []string{"ZADD", "1", "x"}},
	{"a hash", []string{"HSET", "x", "y"}},
	{"a hash of our values under names that are not ours", []string{"HSET", "at", "1 0", "1:1", "1 0", "0:1:1", "1 0", "01", "0 1 1"}},
	{"a hash of our names with other values", []string{"HSET", "1:1:1", "1", "2:1:1", "1 x", "3:1:1", "1 0.5", "1000", "0 1", "2000", "0 1 1 1"}},
	{"a stream", []string{"XADD", "*", "x", "y"}},
}

// garbage is what no field of a state can be.
var garbage = []string{
	"", "abc", "nan", "inf", "1e400", "-1", "0.5", "9007199254740993", "1 -1", "1 0.5", "1 2 3 4", "1 2 x", " 1 2", "1  2",
	"9007199254740993 0", "9007199254740993 0 0", "0 9007199254740993", "0 9007199254740993 0", "0 0 9007199254740993",
}

// Corruptions are for storetest.Config.Corruptions.
func (h *Hooks) Corruptions() []storetest.Corruption {
	var all []storetest.Corruption
	add := func(name string, spoil func(t *testing.T, key string)) {
		all = append(all, storetest.Corruption{
			Name: name,
			Make: func(t *testing.T, s ratelimit.Store, key string, limit *ratelimit.Limit) {
				t.Helper()
				spoil(t, h.Key(t, s, key, limit))
			},
		})
	}
	for _, f := range foreign {
		add(f.name, func(t *testing.T, key string) {
			t.Helper()
			h.Do(t, "DEL", key)
			h.Do(t, append([]string{f.command[0], key}, f.command[1:]...)...)
		})
	}
	for _, text := range garbage {
		add("every field is "+strconv.Quote(text), func(t *testing.T, key string) {
			t.Helper()
			h.each(t, key, func(key, field string) { h.Do(t, "HSET", key, field, text) })
			h.eachEntry(t, key, func(key, index string) { h.Do(t, "LSET", key, index, text) })
		})
	}
	add("cut short", func(t *testing.T, key string) {
		t.Helper()
		h.each(t, key, func(key, field string) {
			text, _ := h.Do(t, "HGET", key, field).(string)
			h.Do(t, "HSET", key, field, text[:strings.LastIndex(text, " ")])
		})
		if h.Do(t, "TYPE", key) == "list" {
			h.Do(t, "RPOP", key)
		}
	})
	return all
}

// each calls f with every field of a hash.
func (h *Hooks) each(t *testing.T, key string, f func(key, field string)) {
	t.Helper()
	if h.Do(t, "TYPE", key) != "hash" {
		return
	}
	fields, _ := h.Do(t, "HKEYS", key).([]any)
	for _, field := range fields {
		f(key, field.(string))
	}
}

// eachEntry calls f with the index of every entry of a list.
func (h *Hooks) eachEntry(t *testing.T, key string, f func(key, index string)) {
	t.Helper()
	if h.Do(t, "TYPE", key) != "list" {
		return
	}
	length, _ := h.Do(t, "LLEN", key).(int64)
	for i := range length {
		f(key, strconv.FormatInt(i, 10))
	}
}
