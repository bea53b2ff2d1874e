package ratelimit_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/sluicego/ratelimit"

// allowed are the modules, beside the standard library, that this one may require.
var allowed = []string{module, "github.com/sony/gobreaker/v2"}

// A pkg is what go list tells of a package.
type pkg struct {
	ImportPath string
	DepOnly    bool // it is not of the module that was listed
	Standard   bool
	Module     *struct{ Path string }
	Imports    []string
	Deps       []string
}

// TestRequirements holds the root module to the standard library and one breaker, so that who wants a limit in memory
// gets no Redis client into the bargain.
func TestRequirements(t *testing.T) {
	t.Parallel()
	for _, p := range list(t, ".") {
		if p.Standard || p.Module != nil && slices.Contains(allowed, p.Module.Path) {
			continue
		}
		t.Errorf("the root module imports %s, of the module %+v", p.ImportPath, p.Module)
	}
	var mod struct{ Require []struct{ Path string } }
	if err := json.Unmarshal(run(t, ".", "mod", "edit", "-json"), &mod); err != nil {
		t.Fatal(err)
	}
	for _, r := range mod.Require {
		if !slices.Contains(allowed, r.Path) {
			t.Errorf("go.mod requires %s", r.Path)
		}
	}
}

// TestNothingOfTesting looks at every module of the workspace: a program that imports any package but storetest links
// nothing that is made for tests. The module faults is nothing but tests, and never published.
func TestNothingOfTesting(t *testing.T) {
	t.Parallel()
	for _, dir := range workspace(t) {
		t.Run(dir, func(t *testing.T) {
			t.Parallel()
			packages := list(t, dir)
			for _, p := range packages {
				if p.DepOnly || strings.Contains(p.ImportPath+"/", "/store/storetest/") || p.ImportPath == module+"/faults" {
					continue
				}
				for _, dep := range p.Deps {
					if forTests(dep) {
						t.Errorf("%s links %s, which %s imports", p.ImportPath, dep, importer(packages, p, dep))
					}
				}
			}
		})
	}
}

// forTests tells whether a package is one that only tests have a use for.
func forTests(path string) bool {
	for _, part := range strings.Split(path, "/") {
		switch part {
		case "testing", "httptest", "storetest", "testify", "goleak", "rapid", "miniredis", "quicktest", "gomega", "gocheck", "check.v1":
			return true
		}
	}
	return false
}

// TestForTests: a list of names that matched nothing would let everything pass.
func TestForTests(t *testing.T) {
	for path, want := range map[string]bool{
		"testing": true, "testing/synctest": true, "net/http/httptest": true, "github.com/stretchr/testify/assert": true,
		module + "/store/storetest": true, "github.com/alicebob/miniredis/v2": true, "go.uber.org/goleak": true,
		"internal/testlog": false, "net/http": false, module + "/store/memstore": false,
	} {
		if forTests(path) != want {
			t.Errorf("forTests(%q) is %v", path, !want)
		}
	}
}

// importer names the package by which p comes to link dep.
func importer(packages []pkg, p pkg, dep string) string {
	if slices.Contains(p.Imports, dep) {
		return p.ImportPath
	}
	for _, q := range packages {
		if slices.Contains(p.Deps, q.ImportPath) && slices.Contains(q.Imports, dep) {
			return q.ImportPath
		}
	}
	return "nobody"
}

// workspace returns the folders of the modules that go.work names, or the root's alone where there is no go.work.
func workspace(t *testing.T) []string {
	t.Helper()
	if _, err := os.Stat("go.work"); errors.Is(err, fs.ErrNotExist) {
		return []string{"."}
	}
	var work struct{ Use []struct{ DiskPath string } }
	if err := json.Unmarshal(run(t, ".", "work", "edit", "-json", "go.work"), &work); err != nil {
		t.Fatal(err)
	}
	var dirs []string
	for _, u := range work.Use {
		dirs = append(dirs, filepath.FromSlash(u.DiskPath))
	}
	if !slices.Contains(dirs, ".") {
		t.Errorf("go.work does not name the root: %v", dirs)
	}
	return dirs
}

// list returns the packages of the module in dir and all they depend on, tests left aside.
func list(t *testing.T, dir string) (packages []pkg) {
	t.Helper()
	lookAt(t, dir)
	d := json.NewDecoder(bytes.NewReader(run(t, dir, "list", "-deps", "-json=ImportPath,DepOnly,Standard,Module,Imports,Deps", "./...")))
	own := 0
	for {
		var p pkg
		err := d.Decode(&p)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
		if !p.DepOnly {
			own++
		}
	}
	if own == 0 {
		t.Fatalf("go list found no package in %s", dir)
	}
	return packages
}

// lookAt makes go test see that the outcome depends on the files in dir: what the go command reads it does not notice, and
// would print the result of an earlier run.
func lookAt(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && (filepath.Ext(path) == ".go" || e.Name() == "go.mod") {
			_, _ = os.Stat(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// run runs the go command in dir, outside the workspace, and returns what it prints.
func run(t *testing.T, dir string, args ...string) []byte {
	t.Helper()
	goCommand, err := exec.LookPath("go")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skipf("%v; install Go, or put it on the PATH (fails where CI is true)", err)
	}
	cmd := exec.CommandContext(t.Context(), goCommand, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s in %s: %v\n%s", strings.Join(args, " "), dir, err, &stderr)
	}
	return out
}
