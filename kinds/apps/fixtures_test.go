package apps

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/yare-project/yare/kind"
)

// TestFixtures creates every object of testdata/apps.<kind>. Those in accept must pass; those in reject begin with a line
// "# want: <text>" for each text that the refusal must hold.
func TestFixtures(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range Group.Kinds {
		dir := filepath.Join("..", "testdata", "apps."+strings.ToLower(k.Names.Kind))
		files, err := filepath.Glob(filepath.Join(dir, "*", "*.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			seen[k.Names.Kind] = true
			t.Run(strings.TrimPrefix(file, "../testdata/"), func(t *testing.T) { checkFixture(t, k, file) })
		}
	}
	for _, name := range []string{"Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "ControllerRevision"} {
		if !seen[name] {
			t.Errorf("no fixtures for %s", name)
		}
	}
}

func checkFixture(t *testing.T, k *kind.Kind, file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "\n---\n") {
		t.Skip("an update: the test of all kinds' fixtures carries it out")
	}
	obj := k.New()
	if err := yaml.UnmarshalStrict(text, obj); err != nil {
		t.Fatalf("%s does not decode: %v", file, err)
	}
	if k.Default != nil {
		k.Default(obj)
	}
	if k.Prepare != nil {
		k.Prepare(obj, nil)
	}
	got := k.Validate(obj, nil).ToAggregate()
	if filepath.Base(filepath.Dir(file)) == "accept" {
		if got != nil {
			t.Fatalf("refused: %v", got)
		}
		return
	}
	wants := 0
	for line := range strings.Lines(string(text)) {
		want, ok := strings.CutPrefix(strings.TrimSpace(line), "# want: ")
		if !ok {
			continue
		}
		wants++
		if got == nil || !strings.Contains(got.Error(), want) {
			t.Errorf("refusal does not say %q: %v", want, got)
		}
	}
	if wants == 0 {
		t.Error("no # want: line")
	}
}
