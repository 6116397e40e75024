package kubeconfig

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// FuzzMerge merges into any file that a user may have. One that cannot be read stays as it is; one that can holds the entry afterwards.
func FuzzMerge(f *testing.F) {
	for _, s := range []string{"", "apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {server: 'https://a'}}]\ncontexts: null\n", "{", "kind: Pod", "a: &a [*a]", "clusters: {}", "users: [{name: 1}]"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		path := filepath.Join(t.TempDir(), "config")
		if err := os.WriteFile(path, file, 0o600); err != nil {
			t.Fatal(err)
		}
		entry := Entry{Name: "yare", Server: "https://127.0.0.1:6443", Token: "t"}
		err := Merge(path, entry)
		now, readErr := os.ReadFile(path)
		if readErr != nil {
			t.Fatal(readErr)
		}
		if err != nil {
			if !bytes.Equal(now, file) {
				t.Errorf("a file that cannot be read was changed: %v", err)
			}
			return
		}
		config, err := load(path)
		if err != nil || config.Clusters[entry.Name] == nil || config.CurrentContext != entry.Name {
			t.Errorf("after merging into %q: %v", file, err)
		}
	})
}
