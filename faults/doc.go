// Package faults tests the library against real servers that are stopped, killed, moved, refused and cut off, by fleets of
// five instances under load. A History holds every decision, and an oracle checks it: what was admitted in any stretch of
// time, whether everybody was answered in time, whether the store decides again soon after it is back, and whether a
// goroutine is left.
//
//	go test -race .                          # about a minute and a half
//	FAULTS_LONG=1 go test -run AtDefaults .  # with an outage of a minute
//
// Nothing here is part of the library.
package faults
