package server_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/internal/kubeconfig"
	"github.com/yare-project/yare/server"
)

// vault is an API server on a disk, which can be stopped and looked into.
type vault struct {
	*testing.T
	dir     string
	api     kubernetes.Interface
	cluster *server.Cluster
	stop    func()
}

func openVault(t *testing.T, dir string, atRest server.AtRest) *vault {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &server.Config{DataDir: dir, Backend: server.Disk, APIOnly: true, Listener: listener, NodeName: "dinghy", NodeIP: netip.MustParseAddr("127.0.0.1"),
		DisableAdmissionPlugins: []string{"ServiceAccount"}, AtRest: atRest, Log: slog.New(slog.DiscardHandler)}
	if err := c.Complete(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cluster, err := server.Start(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	running, end := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- cluster.Wait(running) }()
	v := &vault{T: t, dir: dir}
	stopped := false
	v.stop = func() {
		if stopped {
			return
		}
		stopped = true
		end()
		if err := <-ended; err != nil {
			t.Errorf("the end: %v", err)
		}
	}
	t.Cleanup(v.stop)
	v.api, v.cluster = kubernetes.NewForConfigOrDie(reach(t, cluster.Admin("vault"))), cluster
	return v
}

func reach(t *testing.T, entry kubeconfig.Entry) *rest.Config {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := kubeconfig.Write(path, entry); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// onDisk tells whether the database's files hold some bytes.
func (v *vault) onDisk(text string) bool {
	v.Helper()
	found := false
	err := filepath.WalkDir(filepath.Join(v.dir, "db"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		found = found || bytes.Contains(data, []byte(text))
		return err
	})
	if err != nil {
		v.Fatal(err)
	}
	return found
}

func (v *vault) put(name, text string) {
	v.Helper()
	_, err := v.api.CoreV1().Secrets("default").Create(v.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{"text": text}}, metav1.CreateOptions{})
	if err != nil {
		v.Fatal(err)
	}
}

func (v *vault) reads(name, want string) *corev1.Secret {
	v.Helper()
	s, err := v.api.CoreV1().Secrets("default").Get(v.Context(), name, metav1.GetOptions{})
	if err != nil || string(s.Data["text"]) != want {
		v.Fatalf("secret %s: %v, %q; want %q", name, err, s.Data["text"], want)
	}
	return s
}

// touch writes a Secret as it is, as `kubectl get -o json | kubectl replace -f -` does, and tells whether that was a write.
func (v *vault) touch(name string) bool {
	v.Helper()
	secrets := v.api.CoreV1().Secrets("default")
	s, err := secrets.Get(v.Context(), name, metav1.GetOptions{})
	if err != nil {
		v.Fatal(err)
	}
	now, err := secrets.Update(v.Context(), s, metav1.UpdateOptions{})
	if err != nil {
		v.Fatal(err)
	}
	return now.ResourceVersion != s.ResourceVersion
}

// applies says again what a Secret is, by server-side apply, and tells whether that was a write.
func (v *vault) applies(name string) bool {
	v.Helper()
	secrets := v.api.CoreV1().Secrets("default")
	before, _ := secrets.Get(v.Context(), name, metav1.GetOptions{})
	now, err := secrets.Apply(v.Context(), applycorev1.Secret(name, "default").WithStringData(nil).WithData(map[string][]byte{"text": []byte("tide")}), metav1.ApplyOptions{FieldManager: "harbour"})
	if err != nil {
		v.Fatal(err)
	}
	return now.ResourceVersion != before.ResourceVersion
}

// keysFile has keys, the first of which writes, each named for its one repeated byte.
func keysFile(keys string) string {
	var b strings.Builder
	b.WriteString("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers:\n  - aesgcm:\n      keys:\n")
	for _, k := range keys {
		fmt.Fprintf(&b, "      - {name: key-%c, secret: %s}\n", k, base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{byte(k)}, 32)))
	}
	b.WriteString("  - identity: {}\n")
	return b.String()
}

func TestTheDatabaseShowsNoSecret(t *testing.T) {
	dir := t.TempDir()
	v := openVault(t, dir, server.AtRest{})
	v.put("tide", "high water at four")
	if _, err := v.api.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "buoy"}, Data: map[string]string{"a": "a red one to port"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if v.touch("tide") {
		t.Error("an update that changes nothing was written, though the key is the same")
	}
	v.stop()
	if !v.onDisk("a red one to port") {
		t.Error("the ConfigMap is not to be found: the test looks at nothing")
	}
	if v.onDisk("high water at four") || !v.onDisk("k8s:enc:secretbox:v1:own:") {
		t.Error("the Secret is plain on disk")
	}
	info, err := os.Stat(filepath.Join(dir, server.OwnKeyFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key's file: %v, %v", info, err)
	}
	openVault(t, dir, server.AtRest{}).reads("tide", "high water at four")
}

// TestAnOldFolderIsTakenOver begins with a folder in which Secrets are plain.
func TestAnOldFolderIsTakenOver(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(t.TempDir(), "plain.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  providers:\n  - identity: {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	v := openVault(t, dir, server.AtRest{ConfigFile: file})
	v.put("tide", "high water at four")
	before := v.reads("tide", "high water at four").ResourceVersion
	v.stop()
	if !v.onDisk("high water at four") {
		t.Fatal("the Secret is not plain, though the file says so")
	}
	v = openVault(t, dir, server.AtRest{})
	(&quick{T: t}).until("the Secret is written again, sealed", func(context.Context) error {
		if v.onDisk("k8s:enc:secretbox:v1:own:") {
			return nil
		}
		return errors.New("it is plain")
	})
	v.stop()
	v = openVault(t, dir, server.AtRest{})
	if now := v.reads("tide", "high water at four").ResourceVersion; now == before {
		t.Errorf("it is still the state at %s", before)
	}
}

func TestKeysAreRotatedWhileTheServerRuns(t *testing.T) {
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "keys.yaml")
	write := func(keys string) {
		if err := os.WriteFile(file, []byte(keysFile(keys)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("a")
	v := openVault(t, dir, server.AtRest{ConfigFile: file, Reload: true})
	v.put("tide", "high water at four")
	v.put("still", "slack water at one")
	v.applies("neap")
	if v.applies("neap") {
		t.Error("an apply that changes nothing was written, though the key is the same")
	}
	write("ba")
	(&quick{T: t}).until("the new key is in force", func(context.Context) error {
		if v.touch("tide") {
			return nil
		}
		return errors.New("an update that changes nothing is not written")
	})
	if v.touch("tide") {
		t.Error("it is written once more, though the key is the same")
	}
	if !v.applies("neap") || v.applies("neap") {
		t.Error("an apply that changes nothing is to be written once under a new key, and then no more")
	}
	v.stop()
	if !v.onDisk("k8s:enc:aesgcm:v1:key-b:") {
		t.Error("nothing is sealed with the new key")
	}
	write("b") // too early for one of them
	v = openVault(t, dir, server.AtRest{ConfigFile: file})
	v.reads("tide", "high water at four")
	v.lost("still")
	v.stop()
	write("ba")
	v = openVault(t, dir, server.AtRest{ConfigFile: file})
	v.reads("still", "slack water at one")
}

// lost shows what can be done about a Secret whose key is gone: all others are served, it is named, and can be removed by who says that it may.
func (v *vault) lost(name string) {
	v.Helper()
	secrets := v.api.CoreV1().Secrets("default")
	want := fmt.Sprintf("/registry/secrets/default/%s", name)
	_, get := secrets.Get(v.Context(), name, metav1.GetOptions{})
	_, list := secrets.List(v.Context(), metav1.ListOptions{})
	_, watch := secrets.Watch(v.Context(), metav1.ListOptions{})
	_, update := secrets.Update(v.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.UpdateOptions{})
	remove := secrets.Delete(v.Context(), name, metav1.DeleteOptions{})
	for verb, err := range map[string]error{"get": get, "list": list, "watch": watch, "update": update, "delete": remove} {
		if !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "key-a") {
			v.Errorf("%s of a Secret whose key is gone: %v; want an internal error that names %s and its key", verb, err, want)
		}
	}
	if l, err := secrets.List(v.Context(), metav1.ListOptions{FieldSelector: "metadata.name=tide"}); err != nil || len(l.Items) != 1 {
		v.Errorf("a list of another one: %v, %v", l, err)
	}
	if _, err := v.api.CoreV1().ConfigMaps("").List(v.Context(), metav1.ListOptions{}); err != nil {
		v.Error(err)
	}
}

func TestALostSecretCanBeRemoved(t *testing.T) {
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "keys.yaml")
	for _, keys := range []string{"a", "b"} {
		if err := os.WriteFile(file, []byte(keysFile(keys)), 0o600); err != nil {
			t.Fatal(err)
		}
		v := openVault(t, dir, server.AtRest{ConfigFile: file})
		if keys == "a" {
			v.put("tide", "high water at four")
			v.stop()
			continue
		}
		secrets := v.api.CoreV1().Secrets("default")
		v.lostOnly("tide")
		mate := v.mate()
		unsafe := metav1.DeleteOptions{IgnoreStoreReadErrorWithClusterBreakingPotential: ptr.To(true)}
		if err := mate.CoreV1().Secrets("default").Delete(t.Context(), "tide", unsafe); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "unsafe-delete-ignore-read-errors") {
			t.Errorf("an unsafe delete by who may delete: %v, want it to be forbidden", err)
		}
		if err := secrets.DeleteCollection(t.Context(), unsafe, metav1.ListOptions{}); !apierrors.IsInvalid(err) {
			t.Errorf("an unsafe delete of all: %v", err)
		}
		if err := secrets.Delete(t.Context(), "tide", unsafe); err != nil {
			t.Errorf("an unsafe delete: %v", err)
		}
		if l, err := secrets.List(t.Context(), metav1.ListOptions{}); err != nil || len(l.Items) != 0 {
			t.Errorf("a list afterwards: %v, %v", l, err)
		}
		v.put("tide", "low water at ten")
		v.stop()
		openVault(t, dir, server.AtRest{ConfigFile: file}).reads("tide", "low water at ten")
	}
}

// mate is somebody who may delete Secrets.
func (v *vault) mate() kubernetes.Interface {
	v.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "mate"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "delete"}}}}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "mate"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "mate"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "mate"}}}
	_, err := v.api.RbacV1().ClusterRoles().Create(v.Context(), role, metav1.CreateOptions{})
	if err == nil {
		_, err = v.api.RbacV1().ClusterRoleBindings().Create(v.Context(), binding, metav1.CreateOptions{})
	}
	entry, failed := v.cluster.User("vault", "mate")
	if err = errors.Join(err, failed); err != nil {
		v.Fatal(err)
	}
	mate := kubernetes.NewForConfigOrDie(reach(v.T, entry))
	(&quick{T: v.T}).until("the mate may delete Secrets", func(ctx context.Context) error {
		if err := mate.CoreV1().Secrets("default").Delete(ctx, "none", metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("not yet: %w", err)
		}
		return nil
	})
	return mate
}

func (v *vault) lostOnly(name string) {
	v.Helper()
	if err := v.api.CoreV1().Secrets("default").Delete(v.Context(), name, metav1.DeleteOptions{}); !apierrors.IsInternalError(err) {
		v.Errorf("a delete like any other: %v", err)
	}
}

func TestABadEncryptionFileStopsTheStart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys.yaml")
	if err := os.WriteFile(file, []byte("rubbish"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := &server.Config{DataDir: t.TempDir(), APIOnly: true, HTTPSPort: freePort(t), NodeName: "dinghy", NodeIP: netip.MustParseAddr("127.0.0.1"),
		AtRest: server.AtRest{ConfigFile: file}, Log: slog.New(slog.DiscardHandler)}
	if err := c.Complete(); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Start(t.Context(), c); err == nil || !strings.Contains(err.Error(), "--encryption-provider-config: "+file) {
		t.Errorf("%v, want the flag and the file", err)
	}
	c = &server.Config{DataDir: t.TempDir(), AtRest: server.AtRest{Reload: true}}
	if err := c.Complete(); err == nil || !strings.Contains(err.Error(), "--encryption-provider-config-automatic-reload") {
		t.Errorf("a reload of nothing: %v", err)
	}
}

// TestEverythingIsSealed encrypts all there is, custom resources too, starts again from that, and then decrypts it.
func TestEverythingIsSealed(t *testing.T) {
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "keys.yaml")
	write := func(providers ...string) {
		rule := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: ['*.*']\n  providers:\n" + strings.Join(providers, "")
		if err := os.WriteFile(file, []byte(rule), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	gcm := "  - aesgcm: {keys: [{name: all, secret: " + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32)) + "}]}\n"
	write(gcm)
	v := openVault(t, dir, server.AtRest{ConfigFile: file})
	v.put("tide", "high water at four")
	crds := apiextensions.NewForConfigOrDie(reach(t, v.cluster.Admin("vault"))).ApiextensionsV1().CustomResourceDefinitions()
	if _, err := crds.Create(t.Context(), boatCRD(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	boat := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.org/v1", "kind": "Boat", "metadata": map[string]any{"name": "dinghy"}, "spec": map[string]any{"name": "a very small one"}}}
	(&quick{T: t}).until("the boat is made", func(ctx context.Context) error {
		_, err := dynamic.NewForConfigOrDie(reach(t, v.cluster.Admin("vault"))).Resource(boats).Namespace("default").Create(ctx, boat, metav1.CreateOptions{})
		return err
	})
	v.stop()
	for _, text := range []string{"high water at four", "a very small one", "BoatList"} {
		if v.onDisk(text) {
			t.Errorf("%q is plain on disk", text)
		}
	}
	for _, providers := range [][]string{{gcm}, {"  - identity: {}\n", gcm}} {
		write(providers...)
		v = openVault(t, dir, server.AtRest{ConfigFile: file})
		v.reads("tide", "high water at four")
		resources := dynamic.NewForConfigOrDie(reach(t, v.cluster.Admin("vault"))).Resource(boats).Namespace("default")
		(&quick{T: t}).until("the boat is read", func(ctx context.Context) error {
			got, err := resources.Get(ctx, "dinghy", metav1.GetOptions{})
			if err == nil && len(providers) > 1 {
				_, err = resources.Update(ctx, got, metav1.UpdateOptions{})
			}
			return err
		})
		if l, err := v.api.CoreV1().Services("").List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Errorf("%d Services, %v", len(l.Items), err)
		}
		v.stop()
	}
	if !v.onDisk("a very small one") {
		t.Error("the boat is not plain though identity comes first and it was written")
	}
}
