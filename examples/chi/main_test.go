package main

import (
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicego/ratelimit/examples/internal/curl"
	"github.com/sluicego/ratelimit/examples/internal/program"
	"github.com/sluicego/ratelimit/store/storetest/redisserver"
)

func TestCurl(t *testing.T) {
	t.Parallel()
	if err := curl.Play("main.go", run); err != nil {
		t.Error(err)
	}
}

func TestCurlWithRedis(t *testing.T) {
	t.Parallel()
	if err := curl.Play("main.go", run, "-redis", redisserver.Single(t).Addr); err != nil {
		t.Error(err)
	}
}

// TestLoad sends many requests at once to two servers on one Redis: what they admit together is what the bucket held,
// and what came back meanwhile.
func TestLoad(t *testing.T) {
	t.Parallel()
	const burst, refill, connections, requests = 500, 10 * time.Millisecond, 16, 3000
	redis := redisserver.Single(t).Addr
	var addresses [2]string
	for i := range addresses {
		address, stop, err := program.Start(run, "-redis", redis, "-burst", fmt.Sprint(burst), "-refill", refill.String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := stop(); err != nil {
				t.Error(err)
			}
		}()
		addresses[i] = address
	}
	client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: connections}}
	defer client.CloseIdleConnections()
	var admitted, denied, sent atomic.Int64
	var all sync.WaitGroup
	start := time.Now()
	for i := range connections {
		all.Go(func() {
			for sent.Add(1) <= requests {
				r, err := http.NewRequest(http.MethodGet, "http://"+addresses[i%2]+"/search", nil)
				if err != nil {
					t.Error(err)
					return
				}
				r.Header.Set("X-Api-Key", "load")
				res, err := client.Do(r)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, res.Body)
				res.Body.Close()
				switch res.StatusCode {
				case http.StatusOK:
					admitted.Add(1)
				case http.StatusTooManyRequests:
					denied.Add(1)
				}
			}
		})
	}
	all.Wait()
	came := int64(time.Since(start) / refill)
	if n := admitted.Load(); n < burst || n > burst+came+1 || n+denied.Load() != requests {
		t.Errorf("%d admitted, want %d and up to %d that came back; %d denied, of %d", n, burst, came+1, denied.Load(), requests)
	}
}
