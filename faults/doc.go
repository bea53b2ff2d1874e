// Package faults tests the library against real servers that are stopped, killed, moved, refused and cut off, by fleets of
// five instances under load. A History holds every decision, and an oracle checks it: what was admitted in any stretch of
// time, whether everybody was answered in time, whether the store decides again soon after it is back, and whether a
// goroutine is left.
//
//	go test -race .                          # about half a minute where nothing else runs
//	FAULTS_LONG=1 go test -run AtDefaults .  # with an outage of a minute
//
// As many fleets run side by side as the machine bears, and what it stood still during a call is no fault of that call.
//
// Nothing here is part of the library.
package faults
