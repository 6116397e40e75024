package why_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/yare-project/yare/scheduler"
	"github.com/yare-project/yare/why"
)

var rewrite = flag.Bool("rewrite", false, "write what is printed into testdata")

// TestScenarios asks about a cluster that testdata/NAME.yaml holds and compares with testdata/NAME.txt. The first lines of the YAML say what is asked, when, and, if it says so,
// what the scheduler answers.
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
	said := map[string]string{}
	for _, line := range strings.Split(string(body), "\n") {
		if key, value, ok := strings.Cut(strings.TrimPrefix(line, "# "), ": "); ok && strings.HasPrefix(line, "# ") {
			said[key] = value
		}
	}
	now, err := time.Parse(time.RFC3339, said["now"])
	if err != nil {
		t.Fatal(err)
	}
	kind, name, err := why.ParseObject(said["ask"])
	if err != nil {
		t.Fatal(err)
	}
	config := why.Config{API: fake.NewClientset(objects(t, string(body))...), Now: now}
	if answer := said["scheduler"]; answer != "" {
		config.Ask = func(_ context.Context, asked string) ([]byte, error) {
			if want := scheduler.DebugPath + "default/" + name; asked != want {
				return nil, errors.New("asked for " + asked)
			}
			return []byte(answer), nil
		}
	}
	facts, err := why.Gather(t.Context(), config, kind, "default", name)
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := why.Print(&got, why.Explain(facts), now, time.UTC); err != nil {
		t.Fatal(err)
	}
	golden := strings.TrimSuffix(path, ".yaml") + ".txt"
	if *rewrite {
		if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("want -, got + (go test ./why -rewrite writes it):\n%s", diff)
	}
}

func objects(t *testing.T, body string) []runtime.Object {
	var out []runtime.Object
	for _, doc := range strings.Split(body, "\n---\n") {
		o, _, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(doc), nil, nil)
		if err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		out = append(out, o)
	}
	return out
}

func TestParseObject(t *testing.T) {
	for _, args := range [][]string{{"po/web"}, {"pods", "web"}, {"Pod/web"}} {
		if kind, name, err := why.ParseObject(args...); err != nil || kind != "pod" || name != "web" {
			t.Errorf("%v: %s %s %v", args, kind, name, err)
		}
	}
}
