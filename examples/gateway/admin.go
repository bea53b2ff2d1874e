package main

import (
	"encoding/json"
	"net/http"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/rules"
)

// A state is how the limits of this process stand.
type state struct {
	Enabled   bool   // limits hold
	Store     string // the breaker: "closed" is all is well
	Listening bool   // a changed rule holds at once
	RulesAge  string
	Rules     rules.Stats
	Decisions decisions
}

// decisions are how many were made, and by whom.
type decisions struct{ Store, Fallback, Failed int64 }

// admin serves operators:
//
//	GET  /state
//	GET  /explain?tenant=shop-a&route=create-order    why is this tenant blocked?
//	POST /enabled?on=false                            the kill switch, of this process; on=true ends it
func (l *limits) admin() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /state", func(w http.ResponseWriter, _ *http.Request) { answer(w, l.state()) })
	mux.HandleFunc("GET /explain", func(w http.ResponseWriter, r *http.Request) {
		answer(w, rules.Explain(r.Context(), l.set, l.store.Unwrap(), r.FormValue("tenant"), r.FormValue("route")))
	})
	mux.HandleFunc("POST /enabled", func(w http.ResponseWriter, r *http.Request) {
		switch r.FormValue("on") {
		case "true":
			l.set.SetEnabled(true)
		case "false":
			l.set.SetEnabled(false)
		default:
			http.Error(w, "on is true or false", http.StatusBadRequest)
			return
		}
		answer(w, l.state())
	})
	return mux
}

func (l *limits) state() state {
	s := state{Enabled: l.set.Enabled(), Store: "memory", RulesAge: "never loaded", Rules: l.set.Stats()}
	s.Decisions = decisions{l.store.store.Load(), l.store.fallback.Load(), l.store.failed.Load()}
	if l.fallback != nil {
		s.Store = l.fallback.State().String()
	}
	if l.listener != nil {
		s.Listening = l.listener.Listening()
	}
	if age := l.set.Age(); age != ratelimit.Never {
		s.RulesAge = age.String()
	}
	return s
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	_ = out.Encode(v) // who asked has hung up
}
