// Package curl plays the curl lines of a program's comment against the program, and holds it to what they promise.
//
//	curl -i -H 'X-Api-Key: a' localhost:8080/search   # 429, Retry-After: 30, no RateLimit
package curl

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/sluicego/ratelimit/examples/internal/program"
)

// Play runs the program with args and sends it the requests of the lines in the Go file.
func Play(file string, run program.Run, args ...string) (err error) {
	lines, err := read(file)
	if err != nil {
		return err
	}
	address, stop, err := program.Start(run, args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	for i, l := range lines {
		if e := l.play(address); e != nil {
			err = errors.Join(err, fmt.Errorf("line %d: curl %s: %w", i+1, l.command, e))
		}
	}
	return err
}

// A line is a curl command and what comes of it.
type line struct {
	command string
	request *http.Request // to localhost:8080
	want    []string      // the status; "Name: value" of a header field; "no Name"
}

// read returns the lines of a Go file, at least one.
func read(file string) (lines []line, err error) {
	source, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for text := range strings.Lines(string(source)) {
		command, found := strings.CutPrefix(strings.TrimSpace(text), "//\tcurl ")
		if !found {
			continue
		}
		l, err := parse(command)
		if err != nil {
			return nil, fmt.Errorf("curl %s: %w", command, err)
		}
		lines = append(lines, l)
	}
	if len(lines) == 0 {
		return nil, fmt.Errorf("%s has no curl lines", file)
	}
	return lines, nil
}

func parse(text string) (l line, err error) {
	command, want, _ := strings.Cut(text, "#")
	l.command = strings.TrimSpace(command)
	for w := range strings.SplitSeq(want, ",") {
		l.want = append(l.want, strings.TrimSpace(w))
	}
	if l.request, err = http.NewRequest(http.MethodGet, "http://localhost:8080", nil); err != nil {
		return l, err
	}
	words := split(command)
	for len(words) > 1 {
		option, value := words[0], words[1]
		words = words[1:]
		switch option {
		case "-i":
			continue
		case "-X":
			l.request.Method = value
		case "-H":
			name, v, _ := strings.Cut(value, ":")
			l.request.Header.Add(name, strings.TrimSpace(v))
		case "-u":
			l.request.SetBasicAuth(first(strings.Cut(value, ":")))
		default:
			return l, fmt.Errorf("option %s is not known here", option)
		}
		words = words[1:]
	}
	path, ok := "", false
	if len(words) == 1 {
		path, ok = strings.CutPrefix(words[0], "localhost:8080/")
	}
	if !ok {
		return l, errors.New("no URL of localhost:8080 at the end")
	}
	l.request.URL, err = l.request.URL.Parse("/" + path)
	return l, err
}

func first(a, b string, _ bool) (string, string) { return a, b }

// split cuts a command into words, of which those with spaces stand in single quotes.
func split(command string) (words []string) {
	for i, part := range strings.Split(command, "'") {
		if i%2 == 1 {
			words = append(words, part)
		} else {
			words = append(words, strings.Fields(part)...)
		}
	}
	return words
}

// play sends the request to address.
func (l line) play(address string) error {
	l.request.URL.Host = address
	res, err := (&http.Client{Timeout: 10 * time.Second}).Do(l.request)
	if err != nil {
		return err
	}
	res.Body.Close()
	var wrong []string
	for _, w := range l.want {
		if !kept(res, w) {
			wrong = append(wrong, w)
		}
	}
	if wrong != nil {
		return fmt.Errorf("got %d with %v, not as promised: %q", res.StatusCode, res.Header, wrong)
	}
	return nil
}

// slack is how many seconds a slow machine may have let pass between lines.
const slack = 5

// kept tells whether res is as promised.
func kept(res *http.Response, promise string) bool {
	if name, none := strings.CutPrefix(promise, "no "); none {
		return len(res.Header.Values(name)) == 0
	}
	name, value, field := strings.Cut(promise, ": ")
	switch {
	case !field:
		return promise == strconv.Itoa(res.StatusCode)
	case name == "Retry-After":
		got, err := strconv.Atoi(res.Header.Get(name))
		want, wrong := strconv.Atoi(value)
		return err == nil && wrong == nil && got <= want && got >= max(1, want-slack)
	default:
		return res.Header.Get(name) == value
	}
}
