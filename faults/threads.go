package faults

import (
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

// threads are those of this process, of each of which Linux tells how long it has waited for a processor while it could
// have run. Elsewhere there are none, and stalls are seen by late timers only.
type threads struct {
	files  map[string]*thread
	listed time.Time
}

type thread struct {
	file   *os.File
	waited time.Duration
}

const tasks = "/proc/self/task/"

// look records what threads have waited since the last look.
func (ts *threads) look(s *Stalls) {
	if time.Since(ts.listed) > 10*beat {
		ts.list()
	}
	for id, t := range ts.files {
		before := t.waited
		if !t.read() {
			_ = t.file.Close()
			delete(ts.files, id)
		} else if d := t.waited - before; d > onTime {
			s.waited(time.Now().Add(-d))
		}
	}
}

// list finds the threads that are new.
func (ts *threads) list() {
	ts.listed = time.Now()
	first := ts.files == nil
	if first {
		ts.files = make(map[string]*thread)
	}
	dir, err := os.Open(tasks)
	if err != nil {
		return
	}
	defer dir.Close()
	ids, _ := dir.Readdirnames(-1)
	for _, id := range ids {
		if ts.files[id] != nil {
			continue
		}
		file, err := os.Open(tasks + id + "/schedstat")
		if err != nil {
			continue
		}
		t := &thread{file: file}
		if first { // what a later one waited since it began was lately
			t.read()
		}
		ts.files[id] = t
	}
}

// read reads three numbers, nanoseconds on a processor, nanoseconds in wait of one, and how often, or finds the thread gone.
func (t *thread) read() bool {
	var text [96]byte
	n, err := t.file.ReadAt(text[:], 0)
	if err != nil && err != io.EOF {
		return false
	}
	fields := strings.Fields(string(text[:n]))
	if len(fields) < 2 {
		return false
	}
	ns, err := strconv.ParseInt(fields[1], 10, 64)
	t.waited = time.Duration(ns)
	return err == nil
}

func (ts *threads) close() {
	for _, t := range ts.files {
		_ = t.file.Close()
	}
}
