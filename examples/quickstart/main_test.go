package main

import (
	"bytes"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/sluicego/ratelimit"
	"github.com/sluicego/ratelimit/store/storetest/redisserver"
)

const byDefault = `token-bucket 2 per 1s, burst 10, in memory

  time  call  decision  remaining  retry after  reset after
 0.00s     1  allowed           9            -        500ms
 0.00s     2  allowed           8            -           1s
 0.00s     3  allowed           7            -         1.5s
 0.00s     4  allowed           6            -           2s
 0.00s     5  allowed           5            -         2.5s
 0.00s     6  allowed           4            -           3s
 0.00s     7  allowed           3            -         3.5s
 0.00s     8  allowed           2            -           4s
 0.00s     9  allowed           1            -         4.5s
 0.00s    10  allowed           0            -           5s
 0.00s    11  denied            0        500ms           5s
 0.00s    12  denied            0        500ms           5s
 0.50s    13  allowed           0            -           5s
 0.50s    14  denied            0        500ms           5s
`

func TestDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		if err := run(nil, &out); err != nil {
			t.Fatal(err)
		}
		if out.String() != byDefault {
			t.Errorf("got\n%s\nwant\n%s", &out, byDefault)
		}
	})
}

// TestFlags looks at the first line, the number of calls and how many were allowed.
func TestFlags(t *testing.T) {
	for _, c := range []struct {
		args           string
		title          string
		calls, allowed int
	}{
		{"-algorithm sliding-log -rate 5/500ms", "sliding-log 5 per 500ms", 14, 7},
		{"-algorithm sliding-counter -rate 3/m", "sliding-counter 3 per 1m0s", 14, 3},
		{"-rate 100/m -burst 4 -n 5", "token-bucket 100 per 1m0s, burst 4", 7, 4},
		{"-rate 10/h -burst 0 -n 1", "token-bucket 10 per 1h0m0s", 3, 3},
		{"-rate 1/d -burst 1 -n 1", "token-bucket 1 per 24h0m0s, burst 1", 3, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			var out bytes.Buffer
			if err := run(strings.Fields(c.args), &out); err != nil {
				t.Fatalf("%s: %v", c.args, err)
			}
			text := out.String()
			allowed, denied := strings.Count(text, " allowed "), strings.Count(text, " denied ")
			if !strings.HasPrefix(text, c.title+", in memory\n") || allowed+denied != c.calls || allowed != c.allowed {
				t.Errorf("%s: want %q, %d calls, %d allowed; got\n%s", c.args, c.title, c.calls, c.allowed, text)
			}
		})
	}
}

func TestMistakes(t *testing.T) {
	for args, want := range map[string][]string{
		"-rate 2":                               {"-rate", "such as 2/s"},
		"-rate two/s":                           {"-rate", "such as 2/s"},
		"-rate 2/fortnight":                     {"-rate", "such as 2/s"},
		"-rate 0/s":                             {"-rate", "Rate 0", "1 to 1000000000"},
		"-rate 2/us":                            {"-rate", "such as 2/s"},
		"-rate 2/10us":                          {"-rate", "Period 10µs", "1ms"},
		"-rate 2/367d":                          {"-rate", "such as 2/s"},
		"-rate 2/8785h":                         {"-rate", "Period 8785h", "366 days"},
		"-rate 200000/s -algorithm sliding-log": {"-rate", "Rate 200000", "100000"},
		"-burst -1":                             {"-burst", "Burst -1", "0 to 1000000000"},
		"-burst 5 -algorithm sliding-log":       {"-burst", "must be 0"},
		"-burst many":                           {"-burst"},
		"-algorithm leaky":                      {"-algorithm", "sliding-counter"},
		"-n 0":                                  {"-n 0", "1 to 10000"},
		"-n 10001":                              {"-n 10001", "1 to 10000"},
		"-frobnicate":                           {"-frobnicate"},
		"surplus":                               {"surplus"},
	} {
		var out bytes.Buffer
		err := run(strings.Fields(args), &out)
		if err == nil || out.Len() > 0 {
			t.Errorf("%s: no error, or output: %v, %q", args, err, &out)
			continue
		}
		for _, part := range want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: error %q does not say %q", args, err, part)
			}
		}
	}
}

func TestHelp(t *testing.T) {
	var out bytes.Buffer
	if err := run([]string{"-h"}, &out); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"-redis", "-algorithm", "-rate", "-burst", "-n "} {
		if !strings.Contains(out.String(), name) {
			t.Errorf("the usage does not tell %s:\n%s", name, &out)
		}
	}
}

// TestRedis runs twice: a run begins afresh.
func TestRedis(t *testing.T) {
	server := redisserver.Single(t)
	for range 2 {
		var out bytes.Buffer
		if err := run([]string{"-redis", server.Addr, "-rate", "10/h"}, &out); err != nil {
			t.Fatal(err)
		}
		text := out.String()
		if strings.Count(text, " allowed ") != 10 || strings.Count(text, " denied ") != 4 || !strings.Contains(text, "in Redis at "+server.Addr) {
			t.Errorf("want ten allowed of 14, got\n%s", text)
		}
	}
}

// TestNoRedis asks where nobody listens.
func TestNoRedis(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	var out bytes.Buffer
	if err := run([]string{"-redis", address}, &out); !errors.Is(err, ratelimit.ErrStoreUnavailable) || !strings.Contains(err.Error(), address) {
		t.Errorf("no Redis there: %v\n%s", err, &out)
	}
}
