//go:build !race

package memstore

// raced tells that the race detector runs, which takes many times longer.
const raced = false
