package yaretest_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/yaretest"
)

func clientOf(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return api
}

// until asks again, soon, until f is content or 20 seconds are over.
func until(t *testing.T, what string, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f(ctx)
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, err)
		}
	}
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func TestWhatEveryClusterHas(t *testing.T) {
	api := clientOf(t, yaretest.Start(t).Config())
	for _, name := range []string{"default", "kube-system", "kube-public", "kube-node-lease"} {
		if _, err := api.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	}
	if _, err := api.CoreV1().Services("default").Get(t.Context(), "kubernetes", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := api.RbacV1().ClusterRoles().Get(t.Context(), "cluster-admin", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	// A pod needs no service account, as in envtest; see AdmissionPlugins for the opposite.
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "example.org/app:1"}}}}
	if _, err := api.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
}

func TestServersAreApart(t *testing.T) {
	for i := range 4 {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			api := clientOf(t, yaretest.Start(t).Config())
			// The same name everywhere: a shared store would refuse it.
			if _, err := api.CoreV1().ConfigMaps("default").Create(t.Context(), configMap("mine"), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			list, err := api.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
			if err != nil || len(list.Items) != 1 {
				t.Errorf("%d ConfigMaps, %v", len(list.Items), err)
			}
		})
	}
}

func TestAUserMayDoWhatRolesAllow(t *testing.T) {
	server := yaretest.Start(t)
	config, err := server.AddUser("mate", "crew")
	if err != nil {
		t.Fatal(err)
	}
	admin, mate := clientOf(t, server.Config()), clientOf(t, config)
	_, err = mate.CoreV1().ConfigMaps("default").Create(t.Context(), configMap("log"), metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) {
		t.Fatalf("a user without a role: %v", err)
	}
	binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "crew"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "crew"}}}
	if _, err := admin.RbacV1().RoleBindings("default").Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "the role counts", func(ctx context.Context) error {
		_, err := mate.CoreV1().ConfigMaps("default").Create(ctx, configMap("log"), metav1.CreateOptions{})
		return err
	})
	if _, err := mate.CoreV1().ConfigMaps("kube-system").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("another namespace: %v", err)
	}
	if _, err := server.AddUser(""); err == nil {
		t.Error("a user without a name was made")
	}
}

func TestTheKubeconfigWorks(t *testing.T) {
	server := yaretest.Start(t)
	data, err := server.Kubeconfig()
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(data)
	if err != nil {
		t.Fatal(err)
	}
	who, err := clientOf(t, config).Discovery().ServerVersion()
	if err != nil || who.Major != "1" {
		t.Errorf("%v, %v", who, err)
	}
}

func TestControllersRunWhenAskedFor(t *testing.T) {
	owned := func(t *testing.T, api kubernetes.Interface) {
		owner, err := api.CoreV1().ConfigMaps("default").Create(t.Context(), configMap("owner"), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		child := configMap("child")
		child.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}}
		if _, err := api.CoreV1().ConfigMaps("default").Create(t.Context(), child, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := api.CoreV1().ConfigMaps("default").Delete(t.Context(), "owner", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("on", func(t *testing.T) {
		api := clientOf(t, yaretest.Start(t, yaretest.Controllers("garbage-collector", "namespace-controller")).Config())
		owned(t, api)
		until(t, "the child is collected", func(ctx context.Context) error {
			return gone(api.CoreV1().ConfigMaps("default").Get(ctx, "child", metav1.GetOptions{}))
		})
		if _, err := api.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "brief"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := api.CoreV1().Namespaces().Delete(t.Context(), "brief", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		until(t, "the namespace goes", func(ctx context.Context) error {
			return gone(api.CoreV1().Namespaces().Get(ctx, "brief", metav1.GetOptions{}))
		})
	})
	t.Run("off", func(t *testing.T) {
		api := clientOf(t, yaretest.Start(t).Config())
		owned(t, api)
		if _, err := api.CoreV1().ConfigMaps("default").Get(t.Context(), "child", metav1.GetOptions{}); err != nil {
			t.Errorf("somebody collects garbage unasked: %v", err)
		}
	})
	t.Run("unknown", func(t *testing.T) {
		_, err := yaretest.New(yaretest.Controllers("bosun"))
		if err == nil || !strings.Contains(err.Error(), `"bosun"`) || !strings.Contains(err.Error(), "garbage-collector-controller") {
			t.Errorf("the error does not say what is known: %v", err)
		}
	})
}

func gone[T any](_ T, err error) error {
	if err == nil {
		return errors.New("still there")
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func TestPluginsAreSwitched(t *testing.T) {
	api := clientOf(t, yaretest.Start(t, yaretest.AdmissionPlugins(nil, []string{"NamespaceLifecycle"})).Config())
	if _, err := api.CoreV1().ConfigMaps("nowhere").Create(t.Context(), configMap("x"), metav1.CreateOptions{}); err != nil {
		t.Errorf("NamespaceLifecycle is off, yet: %v", err)
	}
	if _, err := yaretest.New(yaretest.AdmissionPlugins([]string{"Nonsense"}, nil)); err == nil {
		t.Error("a plugin that is not there was switched on")
	}
}

func TestAuditHearsOfRequests(t *testing.T) {
	var mu sync.Mutex
	var heard []yaretest.Request
	server := yaretest.Start(t, yaretest.Audit(func(r yaretest.Request) {
		mu.Lock()
		defer mu.Unlock()
		heard = append(heard, r)
	}))
	if _, err := clientOf(t, server.Config()).CoreV1().ConfigMaps("default").Create(t.Context(), configMap("x"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "the request is heard of", func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		for _, r := range heard {
			if r.Verb == "create" && r.Resource.Resource == "configmaps" && r.Namespace == "default" && r.User == "system:admin" && r.Code == 201 {
				return nil
			}
		}
		return fmt.Errorf("heard %+v", heard)
	})
}

// serveWebhooks is a webhook server such as controller-runtime's: it names boats' rigs, and refuses what has more than three sails.
func serveWebhooks(t *testing.T, at yaretest.WebhookServer) {
	t.Helper()
	cert, err := tls.LoadX509KeyPair(filepath.Join(at.CertDir, "tls.crt"), filepath.Join(at.CertDir, "tls.key"))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := tls.Listen("tcp", net.JoinHostPort(at.Host, strconv.Itoa(at.Port)), &tls.Config{Certificates: []tls.Certificate{cert}})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	answer := func(decide func(boat unstructured.Unstructured, response *admissionv1.AdmissionResponse)) http.HandlerFunc {
		return func(w http.ResponseWriter, req *http.Request) {
			var review admissionv1.AdmissionReview
			var boat unstructured.Unstructured
			body, err := io.ReadAll(req.Body)
			if err = errors.Join(err, json.Unmarshal(body, &review)); err == nil {
				err = json.Unmarshal(review.Request.Object.Raw, &boat)
			}
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
			decide(boat, review.Response)
			_ = json.NewEncoder(w).Encode(review)
		}
	}
	mux.HandleFunc("/mutate-boat", answer(func(_ unstructured.Unstructured, r *admissionv1.AdmissionResponse) {
		r.PatchType = ptr.To(admissionv1.PatchTypeJSONPatch)
		r.Patch = []byte(`[{"op":"replace","path":"/spec/rig","value":"yawl"}]`)
	}))
	mux.HandleFunc("/validate-boat", answer(func(boat unstructured.Unstructured, r *admissionv1.AdmissionResponse) {
		if sails, _, _ := unstructured.NestedInt64(boat.Object, "spec", "sails"); sails > 3 {
			r.Allowed, r.Result = false, &metav1.Status{Message: "too many sails"}
		}
	}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
}

func boat(name string, sails int64) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.org/v1", "kind": "Boat", "metadata": map[string]any{"name": name}, "spec": map[string]any{"sails": sails},
	}}
}

func TestWebhooksAreCalled(t *testing.T) {
	server := yaretest.Start(t, yaretest.CRDs("testdata/crds"), yaretest.Webhooks("testdata/webhooks"))
	api := dynamic.NewForConfigOrDie(server.Config()).Resource(boats).Namespace("default")
	// Nobody serves them yet, and they say failurePolicy: Fail. That the very first request is refused shows that they count from the start.
	if _, err := api.Create(t.Context(), boat("early", 1), metav1.CreateOptions{}); !apierrors.IsInternalError(err) {
		t.Fatalf("a webhook that cannot be reached: %v", err)
	}
	serveWebhooks(t, server.Webhooks())
	made, err := api.Create(t.Context(), boat("tern", 2), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if rig, _, _ := unstructured.NestedString(made.Object, "spec", "rig"); rig != "yawl" {
		t.Errorf("the mutating webhook did not set the rig: %q", rig)
	}
	if _, err := api.Create(t.Context(), boat("clipper", 9), metav1.CreateOptions{}); err == nil || !strings.Contains(err.Error(), "too many sails") {
		t.Errorf("the validating webhook did not refuse: %v", err)
	}
}

func TestWhatCannotBeInstalledSaysWhy(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	valid, err := os.ReadFile("testdata/crds/boats.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		option yaretest.Option
		want   string
	}{
		"no file":             {yaretest.CRDs(filepath.Join(dir, "none")), "no such file"},
		"a misspelt field":    {yaretest.CRDs(write("misspelt.yaml", strings.Replace(string(valid), "shortNames", "shortName", 1))), "shortName"},
		"a bad schema":        {yaretest.CRDs(write("schema.yaml", strings.Replace(string(valid), "type: boolean", "type: maybe", 1))), "maybe"},
		"nothing convertible": {yaretest.Convertible("boats.example.org"), "boats.example.org"},
	} {
		t.Run(name, func(t *testing.T) {
			server, err := yaretest.New(c.option)
			if err == nil {
				_ = server.Stop()
				t.Fatal("it started")
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v does not mention %q", err, c.want)
			}
		})
	}
}

// TestNothingIsLeft compares the goroutines, the open files and the temporary files of before and after.
func TestNothingIsLeft(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	cycle := func() {
		server, err := yaretest.New(yaretest.CRDs("testdata/crds"), yaretest.Webhooks("testdata/webhooks"), yaretest.Controllers("*"))
		if err != nil {
			t.Fatal(err)
		}
		config := server.Config()
		transport, err := rest.TransportFor(config)
		if err != nil {
			t.Fatal(err)
		}
		// A watch that is open when the server stops, as an informer's would be.
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+"/api/v1/configmaps?watch=true", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := transport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		closeIdle(transport)
	}
	cycle() // what lives as long as the process starts with the first server
	before := settled(t, 0)
	cycle()
	if after := settled(t, before); after > before {
		var stacks bytes.Buffer
		buf := make([]byte, 1<<20)
		stacks.Write(buf[:runtime.Stack(buf, true)])
		t.Errorf("%d goroutines before, %d after:\n%s", before, after, stacks.String())
	}
	if left, _ := os.ReadDir(tmp); len(left) > 0 {
		t.Errorf("left in the temporary folder: %v", left)
	}
}

func closeIdle(transport http.RoundTripper) {
	if c, ok := transport.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// settled waits until there are no more goroutines than wanted, or their number has not changed for a while, and returns it.
func settled(t *testing.T, want int) int {
	t.Helper()
	last, calm := runtime.NumGoroutine(), 0
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for calm < 50 {
		<-tick.C
		now := runtime.NumGoroutine()
		if now <= want {
			return now
		}
		if calm++; now != last {
			last, calm = now, 0
		}
	}
	return last
}

// BenchmarkStart is a whole life: start, one request, stop.
func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		server, err := yaretest.New()
		if err != nil {
			b.Fatal(err)
		}
		if err := server.Stop(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkStartWithCRD adds a custom resource that is served at the end.
func BenchmarkStartWithCRD(b *testing.B) {
	for b.Loop() {
		server, err := yaretest.New(yaretest.CRDs("testdata/crds"))
		if err != nil {
			b.Fatal(err)
		}
		if err := server.Stop(); err != nil {
			b.Fatal(err)
		}
	}
}
