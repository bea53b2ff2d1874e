package main

import "net/http"

// routes are what the rules in the database call the routes of the upstream.
var routes = newRouteTable(map[string]string{
	"POST /orders":     "create-order",
	"GET /orders/{id}": "get-order",
	"GET /search":      "search",
})

// defaultRoute is every request that no pattern fits: paths that a client makes up share one limit.
const defaultRoute = "default"

// A routeTable tells the id of a request's route, by patterns of http.ServeMux.
type routeTable struct {
	mux *http.ServeMux
	ids map[string]string // by pattern
}

func newRouteTable(ids map[string]string) routeTable {
	mux := http.NewServeMux()
	for pattern := range ids {
		mux.Handle(pattern, http.NotFoundHandler()) // nobody calls it: the mux is asked for the pattern alone
	}
	return routeTable{mux, ids}
}

func (t routeTable) of(r *http.Request) string {
	_, pattern := t.mux.Handler(r)
	if id, ok := t.ids[pattern]; ok {
		return id
	}
	return defaultRoute
}
