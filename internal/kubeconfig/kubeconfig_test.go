package kubeconfig

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd"
	api "k8s.io/client-go/tools/clientcmd/api"
)

var ship = Entry{Name: "yare", Server: "https://127.0.0.1:6443", CA: []byte("ca"), Cert: []byte("cert"), Key: []byte("key")}

func TestMergeAndRemoveLeaveOthersAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kube", "config")
	other := Entry{Name: "other", Server: "https://192.0.2.1:6443", Token: "t"}
	if err := Write(path, other); err != nil {
		t.Fatal(err)
	}
	before := read(t, path)
	if err := Merge(path, ship); err != nil {
		t.Fatal(err)
	}
	merged := read(t, path)
	if merged.CurrentContext != "yare" || merged.Clusters["yare"].Server != ship.Server || merged.AuthInfos["other"].Token != "t" {
		t.Errorf("after the merge: %+v", merged)
	}
	if err := Remove(path, "yare", ship.Server); err != nil {
		t.Fatal(err)
	}
	before.CurrentContext = ""
	if diff := cmp.Diff(before.Clusters, read(t, path).Clusters); diff != "" {
		t.Errorf("after the removal (-before +after):\n%s", diff)
	}
}

func TestRemoveSparesAnEntryOfAnotherCluster(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	if err := Write(path, ship); err != nil {
		t.Fatal(err)
	}
	if err := Remove(path, "yare", "https://192.0.2.9:6443"); err != nil {
		t.Fatal(err)
	}
	if read(t, path).Clusters["yare"] == nil {
		t.Error("an entry that points elsewhere was removed")
	}
}

func TestRemoveOfTheLastEntryRemovesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	if err := Write(path, ship); err != nil {
		t.Fatal(err)
	}
	if err := Remove(path, ship.Name, ship.Server); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the file is still there: %v", err)
	}
}

func TestAnUnreadableFileIsNamedAndLeft(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(path, []byte("clusters: [}"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := Merge(path, ship)
	if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "--write-kubeconfig") {
		t.Errorf("the error does not say which file and what to do: %v", err)
	}
	if text, _ := os.ReadFile(path); string(text) != "clusters: [}" {
		t.Errorf("the file was changed: %q", text)
	}
}

func TestUserFile(t *testing.T) {
	env := func(m map[string]string) func(string) string { return func(k string) string { return m[k] } }
	got, err := UserFile(env(map[string]string{"KUBECONFIG": "/a:/b", "HOME": "/h"}))
	if got != "/a" || err != nil {
		t.Errorf("with KUBECONFIG: %q, %v", got, err)
	}
	got, err = UserFile(env(map[string]string{"HOME": "/h"}))
	if got != "/h/.kube/config" || err != nil {
		t.Errorf("with HOME: %q, %v", got, err)
	}
	if _, err := UserFile(env(nil)); err == nil {
		t.Error("without either: no error")
	}
}

func read(t *testing.T, path string) *api.Config {
	t.Helper()
	config, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return config
}
