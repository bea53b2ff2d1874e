package storetest

import (
	"math"
	"math/big"
	"slices"
	"time"

	"github.com/sluicego/ratelimit"
)

// The model says what a store has to answer. It is written from the contract and shares no arithmetic with the library:
// tokens are fractions of any size, a log is a list of calls, a counter's estimate is a fraction. It is slow and keeps
// everything.
//
// Times are whole microseconds, the resolution of every limit.

// An account is what one key has spent under one limit. Accounts never change: a decision makes new ones.
type account struct {
	limit ratelimit.Limit // under which it was written

	at     int64    // bucket: when it held tokens; log: its newest time; counter: start of its window
	tokens *big.Rat // bucket

	spends []spend // log, oldest first

	current, previous int64 // counter
}

type spend struct{ at, cost int64 }

// A model is every account of a store. Its ids are those of a test, not of a store: tests do not spell a key in two ways.
//
// A state that has become as if unused may be forgotten by the store or not. That shows only once the limit changes or
// the clock steps back, so until then the model keeps what an account may be: one of several, nil for unused.
type model struct {
	accounts map[accountID][]*account // what is not in it is unused
	latest   int64                    // the latest time of any call
}

type accountID struct {
	key       string
	algorithm ratelimit.Algorithm
	name      string
}

func newModel() *model { return &model{accounts: map[accountID][]*account{}} }

func idOf(key string, l *ratelimit.Limit) accountID { return accountID{key, l.Algorithm, l.Name} }

func (m *model) reset(key string, l *ratelimit.Limit) { delete(m.accounts, idOf(key, l)) }

// find returns what the account of (key, l) may be, most likely first.
func (m *model) find(key string, l *ratelimit.Limit) []*account {
	may := m.accounts[idOf(key, l)]
	if len(may) == 0 {
		return []*account{nil}
	}
	for _, a := range may {
		if a != nil && a.unused() <= m.latest && !slices.Contains(may, nil) {
			return append(slices.Clip(may), nil)
		}
	}
	return may
}

// room is what could be spent at now.
func (m *model) room(key string, l *ratelimit.Limit, now int64) int64 {
	v, _ := m.find(key, l)[0].under(*l, now)
	return v.room(now)
}

// takeAll decides reqs, each of another account, and keeps the outcome.
func (m *model) takeAll(reqs []ratelimit.Request, now int64) []ratelimit.Result {
	want, _ := m.judge(reqs, now, nil)
	return want
}

// judge decides reqs for a store that answered got, or nil for the likeliest answer. It returns the answer that should
// have been, and whether it was: every field of got is that of one and the same outcome.
func (m *model) judge(reqs []ratelimit.Request, now int64, got []ratelimit.Result) (want []ratelimit.Result, right bool) {
	m.latest = max(m.latest, now)
	may := make([][]*account, len(reqs))
	for i := range reqs {
		may[i] = m.find(reqs[i].Key, reqs[i].Limit)
	}
	after := make([][]*account, len(reqs))
	choice := make([]int, len(reqs))
	for {
		accounts := make([]*account, len(reqs))
		for i := range reqs {
			accounts[i] = may[i][choice[i]]
		}
		results, next := decide(accounts, reqs, now)
		if want == nil {
			want = results
		}
		if got == nil {
			got = results
		}
		if slices.Equal(results, got) {
			right = true
			for i, a := range next {
				if !slices.ContainsFunc(after[i], a.equal) {
					after[i] = append(after[i], a)
				}
			}
		}
		i := 0
		for i < len(reqs) && choice[i] == len(may[i])-1 {
			choice[i] = 0
			i++
		}
		if i == len(reqs) {
			break
		}
		choice[i]++
	}
	if right {
		for i := range reqs {
			m.accounts[idOf(reqs[i].Key, reqs[i].Limit)] = after[i]
		}
	}
	return want, right
}

func (a *account) equal(b *account) bool {
	if a == nil || b == nil || a == b {
		return a == b
	}
	return a.limit == b.limit && a.at == b.at && a.current == b.current && a.previous == b.previous &&
		slices.Equal(a.spends, b.spends) && (a.tokens == nil || a.tokens.Cmp(b.tokens) == 0)
}

// decide answers reqs over their accounts, all or nothing, and returns the accounts after it: the same ones where
// nothing is written.
func decide(accounts []*account, reqs []ratelimit.Request, now int64) (results []ratelimit.Result, after []*account) {
	after = slices.Clone(accounts)
	views := make([]*account, len(reqs))
	healed := make([]bool, len(reqs))
	all := true
	for i, r := range reqs {
		views[i], healed[i] = accounts[i].under(*r.Limit, now)
		v := views[i]
		res := v.result(now)
		switch {
		case r.Cost > r.Limit.Capacity():
			res = ratelimit.Result{Limit: r.Limit.Capacity(), RetryAfter: ratelimit.Never, Name: r.Limit.Name}
			healed[i] = false // denied without a look
			all = false
		case r.Cost > res.Remaining:
			res.RetryAfter = v.wait(now, r.Cost)
			all = false
		}
		results = append(results, res)
	}
	for i, r := range reqs {
		v := views[i]
		taken := int64(0)
		if all {
			room := results[i].Remaining
			if r.Cost >= 0 {
				taken = r.Cost + min(r.Extra, room-r.Cost)
				v = v.spent(now, taken)
			} else {
				v, taken = v.given(-max(r.Cost, -math.MaxInt64))
			}
			results[i] = v.result(now)
			results[i].Allowed, results[i].Taken = true, taken
		}
		if taken != 0 || healed[i] {
			after[i] = v
		}
	}
	return results, after
}

func (a *account) result(now int64) ratelimit.Result {
	return ratelimit.Result{
		Limit: a.limit.Capacity(), Remaining: a.room(now), Name: a.limit.Name,
		ResetAfter: micros(new(big.Int).SetInt64(max(0, a.unused()-now))),
	}
}

// micros turns microseconds into a Duration; what is too long for one is the longest in whole microseconds.
func micros(us *big.Int) time.Duration {
	longest := big.NewInt(math.MaxInt64 / 1000)
	if us.Cmp(longest) > 0 {
		us = longest
	}
	return time.Duration(us.Int64()) * time.Microsecond
}
