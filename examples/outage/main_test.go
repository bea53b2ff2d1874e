package main

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestOutage(t *testing.T) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("no redis-server: apt-get install redis-server")
		}
		t.Skip("no redis-server: apt-get install redis-server (in CI this fails)")
	}
	svg := filepath.Join(t.TempDir(), "outage.svg")
	var out bytes.Buffer
	err := run(context.Background(), []string{"-instances", "2", "-up", "1s", "-down", "1s", "-svg", svg}, &out)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "killed"); n != 2 {
		t.Errorf("%d of the 2 lines of the outage:\n%s", n, &out)
	}
	drawing, err := os.Open(svg)
	if err != nil {
		t.Fatal(err)
	}
	defer drawing.Close()
	texts := 0
	for d := xml.NewDecoder(drawing); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("the drawing is no XML: %v", err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "text" {
			texts++
		}
	}
	if texts < 5 {
		t.Errorf("the drawing has %d texts", texts)
	}
}

func TestParseRefuses(t *testing.T) {
	for _, args := range []string{
		"-instances 0", "-instances 101", "-limit 0", "-limit 10001", "-offered -1", "-offered 20001", "-up 1ms", "-down 2h", "more", "-nothing",
	} {
		if err := run(context.Background(), strings.Fields(args), io.Discard); err == nil {
			t.Errorf("%s is accepted", args)
		}
	}
}
