package simulate_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/yare-project/yare/simulate"
)

var rewrite = flag.Bool("rewrite", false, "write what is printed into testdata")

// TestScenarios tries on a cluster what testdata/NAME.yaml holds and compares with testdata/NAME.txt. The first lines of the YAML say what is asked, as "# flag: value"; the
// documents behind "# try" are the manifest, those before it the cluster.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no scenarios", err)
	}
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".yaml"), func(t *testing.T) { scenario(t, path) })
	}
}

func scenario(t *testing.T, path string) {
	body, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	world, try, _ := strings.Cut(string(body), "# try\n")
	cluster := load(t, world)
	options := flags(t, world)
	if options.Manifest, err = simulate.ParseManifest(strings.NewReader(try), "default"); err != nil {
		t.Fatal(err)
	}
	got := printed(t, cluster, options)
	golden := strings.TrimSuffix(path, ".yaml") + ".txt"
	if *rewrite {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("want -, got + (go test ./simulate -rewrite writes it):\n%s", diff)
	}
	if again := printed(t, cluster, options); again != got {
		t.Errorf("the second time - first, + second:\n%s", cmp.Diff(got, again))
	}
}

func load(t testing.TB, text string) *simulate.Cluster {
	t.Helper()
	cluster, err := simulate.Load(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	cluster.Taken = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	return cluster
}

func flags(t *testing.T, text string) simulate.Options {
	o := simulate.Options{Seed: 1}
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "# "), ": ")
		if !ok || !strings.HasPrefix(line, "# ") {
			continue
		}
		var err error
		switch key {
		case "without-node":
			o.Without = strings.Split(value, ",")
		case "fit":
			o.Fit, err = strconv.Atoi(value)
		case "node-like":
			o.Like = &simulate.Shape{Node: value}
		case "node":
			o.Like, err = simulate.ParseShape(value)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return o
}

func printed(t testing.TB, cluster *simulate.Cluster, o simulate.Options) string {
	t.Helper()
	report, err := simulate.Run(t.Context(), cluster, o)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := simulate.Print(&out, report); err != nil {
		t.Fatal(err)
	}
	return out.String()
}
