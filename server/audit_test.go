package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/yare-project/yare/apiserver/audit"
	"github.com/yare-project/yare/server"
)

func written(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func auditTo(t *testing.T, path, rules string, change ...func(*audit.Options)) func(*server.Config) {
	o := audit.DefaultOptions()
	o.PolicyFile, o.Log.Path = written(t, "policy.yaml", "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n"+rules), path
	for _, f := range change {
		f(&o)
	}
	return func(c *server.Config) { c.Audit = o }
}

func auditEvents(t *testing.T, path string) []auditv1.Event {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []auditv1.Event
	lines := bufio.NewReader(f)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		var e auditv1.Event
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		out = append(out, e)
	}
}

// TestAClustersAuditLog: users, loops and nodes leave the events that the policy wants, and nothing that it does not.
func TestAClustersAuditLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	q := startQuick(t, auditTo(t, path, `
- {level: None, verbs: [get, list, watch]}
- {level: Metadata, resources: [{group: "", resources: [secrets, serviceaccounts/token]}]}
- {level: Request, resources: [{group: "", resources: [pods/binding]}]}
- {level: RequestResponse, resources: [{group: "", resources: [configmaps]}], namespaces: [default]}
- {level: Metadata, namespaces: [default]}
`))
	ctx := t.Context()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}, StringData: map[string]string{"password": "open-sesame"}}
	if _, err := q.api.CoreV1().Secrets("default").Create(ctx, secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Data: map[string]string{"colour": "red"}}
	if _, err := q.api.CoreV1().ConfigMaps("default").Create(ctx, cm, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	if _, err := q.api.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	find := func(what string, fits func(*auditv1.Event) bool) *auditv1.Event {
		t.Helper()
		var events []auditv1.Event
		for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-time.After(5 * time.Millisecond) {
			events = auditEvents(t, path)
			if i := slices.IndexFunc(events, func(e auditv1.Event) bool { return fits(&e) }); i >= 0 {
				return &events[i]
			}
		}
		t.Fatalf("%s: not among %d events", what, len(events))
		return nil
	}
	about := func(resource, name string) func(*auditv1.Event) bool {
		return func(e *auditv1.Event) bool {
			return e.Verb == "create" && e.ObjectRef.Resource == resource && e.ObjectRef.Subresource == "" && e.ObjectRef.Name == name
		}
	}
	if e := find("the secret", about("secrets", "s")); e.RequestObject != nil || e.ResponseObject != nil || e.ResponseStatus.Code != 201 || e.User.Username == "" || e.SourceIPs[0] != "127.0.0.1" {
		t.Errorf("%+v", e)
	}
	if e := find("the config map", about("configmaps", "c")); !strings.Contains(string(e.RequestObject.Raw), `"red"`) || !strings.Contains(string(e.ResponseObject.Raw), `"uid"`) || e.Annotations["authorization.k8s.io/decision"] != "allow" {
		t.Errorf("%+v", e)
	}
	if e := find("the pod", about("pods", "p")); e.Annotations["pod-security.kubernetes.io/enforce-policy"] != "privileged:latest" {
		text, _ := json.Marshal(e)
		t.Errorf("%s", text)
	}
	bound := find("the binding", func(e *auditv1.Event) bool { return e.ObjectRef.Subresource == "binding" && e.ObjectRef.Name == "p" })
	if bound.User.Username != "system:kube-scheduler" || !strings.Contains(string(bound.RequestObject.Raw), "dinghy") {
		t.Errorf("bound by %s: %s", bound.User.Username, bound.RequestObject.Raw)
	}
	for _, e := range auditEvents(t, path) {
		text, err := json.Marshal(e)
		if err != nil || strings.Contains(string(text), "sesame") || e.Verb == "get" || e.Verb == "list" || e.Verb == "watch" {
			t.Errorf("%s (%v)", text, err)
		}
	}
	if n := q.counter("apiserver_audit_level_total", `level="Metadata"`); n == 0 {
		t.Error("no requests are counted by level")
	}
}

// TestBatchesAreWrittenAtTheEnd: what waits when the server stops is not lost.
func TestBatchesAreWrittenAtTheEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	t.Run("server", func(t *testing.T) {
		q := startQuick(t, auditTo(t, path, "- {level: Metadata, verbs: [create], namespaces: [default]}", func(o *audit.Options) {
			o.Log.Mode, o.Log.Batch.Size, o.Log.Batch.Wait = "batch", 1000, time.Hour
		}))
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "last"}}
		if _, err := q.api.CoreV1().ConfigMaps("default").Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	})
	if !slices.ContainsFunc(auditEvents(t, path), func(e auditv1.Event) bool { return e.ObjectRef.Name == "last" }) {
		t.Error("the last event was lost")
	}
}

func TestABadPolicyFileEndsTheStart(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*server.Config)
		want   string
	}{
		"audit policy":  {auditTo(t, filepath.Join(t.TempDir(), "audit.log"), "- {level: Everything}"), `--audit-policy-file`},
		"audit mode":    {auditTo(t, "x", "- {level: None}", func(o *audit.Options) { o.Log.Mode = "never" }), `--audit-log-mode "never"`},
		"plugin":        {func(c *server.Config) { c.EnableAdmissionPlugins = []string{"PodPreset"} }, `plugin "PodPreset" is unknown`},
		"plugins' file": {func(c *server.Config) { c.AdmissionConfigFile = written(t, "a.yaml", "apiVersion: v1\nkind: List\n") }, "--admission-control-config-file"},
	} {
		t.Run(name, func(t *testing.T) {
			config := &server.Config{APIOnly: true, Backend: server.Memory, HTTPSPort: freePort(t), NodeName: "dinghy", Log: slog.New(slog.DiscardHandler)}
			c.change(config)
			err := config.Complete()
			if err == nil {
				_, err = server.Start(t.Context(), config)
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want one line with %q", err, c.want)
			}
		})
	}
}

// TestOptionalPluginsWorkInAServer: flags and the file reach the plugins.
func TestOptionalPluginsWorkInAServer(t *testing.T) {
	q := startQuick(t, func(c *server.Config) {
		c.EnableAdmissionPlugins = []string{"AlwaysPullImages", "EventRateLimit", "NamespaceAutoProvision", "MutatingAdmissionWebhook"}
		c.DisableAdmissionPlugins = []string{"DefaultTolerationSeconds"}
		c.AdmissionConfigFile = written(t, "admission.yaml", `
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: EventRateLimit
  configuration:
    apiVersion: eventratelimit.admission.k8s.io/v1alpha1
    kind: Configuration
    limits: [{type: Namespace, qps: 1, burst: 2}]
`)
	})
	ctx := context.Background()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}}
	if _, err := q.api.CoreV1().ConfigMaps("fresh").Create(ctx, cm, metav1.CreateOptions{}); err != nil {
		t.Errorf("into a namespace that was not there: %v", err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{NodeName: "elsewhere", Containers: []corev1.Container{{Name: "c", Image: "i", ImagePullPolicy: corev1.PullNever}}}}
	made, err := q.api.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if made.Spec.Containers[0].ImagePullPolicy != corev1.PullAlways || len(made.Spec.Tolerations) != 0 {
		t.Errorf("policy %s, tolerations %v", made.Spec.Containers[0].ImagePullPolicy, made.Spec.Tolerations)
	}
	limited := false
	for range 10 {
		_, err := q.api.CoreV1().Events("fresh").Create(ctx, &corev1.Event{ObjectMeta: metav1.ObjectMeta{GenerateName: "e-", Namespace: "fresh"}, InvolvedObject: corev1.ObjectReference{Namespace: "fresh"}}, metav1.CreateOptions{})
		limited = limited || apierrors.IsTooManyRequests(err) && strings.Contains(err.Error(), "limit reached on type Namespace for key fresh")
	}
	if !limited {
		t.Error("ten events at once were all let in")
	}
}
