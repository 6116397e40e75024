package apiserver_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

func eachCodec(t *testing.T, f func(t *testing.T, h *harness, c *kubernetes.Clientset)) {
	h := start(t)
	t.Run("protobuf", func(t *testing.T) { f(t, h, h.client()) })
	h = start(t)
	t.Run("json", func(t *testing.T) { f(t, h, h.jsonClient()) })
}

func TestObjectLivesThroughEveryVerb(t *testing.T) {
	eachCodec(t, func(t *testing.T, h *harness, c *kubernetes.Clientset) {
		ctx := within(t)
		made, err := c.CoreV1().ConfigMaps("ns").Create(ctx, configMap("a", map[string]string{"k": "v"}), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if made.UID == "" || made.CreationTimestamp.IsZero() || made.ResourceVersion == "" || len(made.ManagedFields) != 1 {
			t.Fatalf("the server's metadata is not there: %+v", made.ObjectMeta)
		}
		got, err := c.CoreV1().ConfigMaps("ns").Get(ctx, "a", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(made, got); d != "" {
			t.Fatalf("get differs from what create answered:\n%s", d)
		}
		got.Data["k"] = "w"
		changed, err := c.CoreV1().ConfigMaps("ns").Update(ctx, got, metav1.UpdateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if changed.Data["k"] != "w" || changed.ResourceVersion == made.ResourceVersion || changed.UID != made.UID {
			t.Fatalf("update answered %+v", changed)
		}
		list, err := c.CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{})
		if err != nil || len(list.Items) != 1 || list.ResourceVersion != changed.ResourceVersion {
			t.Fatalf("list: %+v %v", list, err)
		}
		if d := cmp.Diff(*changed, list.Items[0]); d != "" {
			t.Fatalf("list differs:\n%s", d)
		}
		if err := c.CoreV1().ConfigMaps("ns").Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		_, err = c.CoreV1().ConfigMaps("ns").Get(ctx, "a", metav1.GetOptions{})
		if !apierrors.IsNotFound(err) || err.Error() != `configmaps "a" not found` {
			t.Fatalf("after delete: %v", err)
		}
	})
}

func TestCreateRefusals(t *testing.T) {
	h := start(t)
	ctx := within(t)
	c := h.client().CoreV1().ConfigMaps("ns")
	if _, err := c.Create(ctx, configMap("a", nil), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := c.Create(ctx, configMap("a", nil), metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) || err.Error() != `configmaps "a" already exists` {
		t.Errorf("a second create: %v", err)
	}
	_, err = c.Create(ctx, configMap("", nil), metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "metadata.name: Required value: name or generateName is required") {
		t.Errorf("without a name: %v", err)
	}
	_, err = c.Create(ctx, configMap("Not_A_Name", nil), metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "RFC 1123 subdomain") {
		t.Errorf("with a bad name: %v", err)
	}
	other := configMap("b", nil)
	other.Namespace = "elsewhere"
	if a := h.do("POST", "/api/v1/namespaces/ns/configmaps", `{"metadata":{"name":"b","namespace":"elsewhere"}}`); a.code != 400 ||
		!strings.Contains(a.body, "the namespace of the provided object does not match the namespace sent on the request") {
		t.Errorf("with another namespace: %+v", a)
	}
	big := configMap("big", nil)
	big.Annotations = map[string]string{"a": strings.Repeat("x", 257<<10)}
	if _, err = c.Create(ctx, big, metav1.CreateOptions{}); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "metadata.annotations: Too long") {
		t.Errorf("with 257 KiB of annotations: %v", err)
	}
	versioned := configMap("v", nil)
	versioned.ResourceVersion = "7"
	if _, err = c.Create(ctx, versioned, metav1.CreateOptions{}); err == nil || !strings.Contains(err.Error(), "resourceVersion should not be set on objects to be created") {
		t.Errorf("with a resourceVersion: %v", err)
	}
}

func TestGenerateName(t *testing.T) {
	h := start(t)
	ctx := within(t)
	names := map[string]bool{}
	for range 20 {
		o, err := h.client().CoreV1().ConfigMaps("ns").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "x-"}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(o.Name, "x-") || len(o.Name) != 7 || names[o.Name] {
			t.Fatalf("made %q", o.Name)
		}
		names[o.Name] = true
	}
}

func TestUpdateConflictsAndPreconditions(t *testing.T) {
	h := start(t)
	ctx := within(t)
	c := h.client().CoreV1().ConfigMaps("ns")
	first := must(c.Create(ctx, configMap("a", map[string]string{"n": "1"}), metav1.CreateOptions{}))
	second := first.DeepCopy()
	second.Data["n"] = "2"
	second = must(c.Update(ctx, second, metav1.UpdateOptions{}))

	stale := first.DeepCopy()
	stale.Data["n"] = "3"
	_, err := c.Update(ctx, stale, metav1.UpdateOptions{})
	want := `Operation cannot be fulfilled on configmaps "a": the object has been modified; please apply your changes to the latest version and try again`
	if !apierrors.IsConflict(err) || err.Error() != want {
		t.Errorf("a stale update: %v", err)
	}
	blind := configMap("a", map[string]string{"n": "4"})
	if third, err := c.Update(ctx, blind, metav1.UpdateOptions{}); err != nil || third.Data["n"] != "4" || third.UID != first.UID {
		t.Errorf("an unconditional update: %+v %v", third, err)
	}
	wrong := configMap("a", nil)
	wrong.UID = "other"
	if _, err := c.Update(ctx, wrong, metav1.UpdateOptions{}); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "Precondition failed: UID in precondition: other") {
		t.Errorf("an update of another uid: %v", err)
	}
	if _, err := c.Update(ctx, configMap("missing", nil), metav1.UpdateOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("an update of nothing: %v", err)
	}
}

// What an update says of metadata is checked as what a create says is, and what only the server sets stays.
func TestUpdateRefusals(t *testing.T) {
	h := start(t)
	ctx := within(t)
	c := h.client().CoreV1().ConfigMaps("ns")
	made := must(c.Create(ctx, configMap("a", nil), metav1.CreateOptions{}))
	for name, test := range map[string]struct {
		change func(*corev1.ConfigMap)
		want   string
	}{
		"finalizer without a domain": {func(m *corev1.ConfigMap) { m.Finalizers = []string{"mine"} },
			`metadata.finalizers[0]: Invalid value: "mine": name is neither a standard finalizer name nor is it fully qualified`},
		"malformed finalizer": {func(m *corev1.ConfigMap) { m.Finalizers = []string{"a.b/-"} }, `metadata.finalizers: Invalid value: "a.b/-"`},
		"malformed prefix":    {func(m *corev1.ConfigMap) { m.GenerateName = "a%b" }, `metadata.generateName: Invalid value: "a%b": may not contain '%'`},
		"deletion time":       {func(m *corev1.ConfigMap) { m.DeletionTimestamp = ptr.To(metav1.Now()) }, "metadata.deletionTimestamp: Invalid value"},
		"grace":               {func(m *corev1.ConfigMap) { m.DeletionGracePeriodSeconds = ptr.To(int64(5)) }, "metadata.deletionGracePeriodSeconds: Invalid value: 5: field is immutable"},
	} {
		m := made.DeepCopy()
		test.change(m)
		if _, err := c.Update(ctx, m, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
	if a := h.do("PUT", "/api/v1/namespaces/ns/configmaps/a", `{"data":{}}`); a.code != 400 || !strings.Contains(a.body, "the name of the object (a based on URL) was undeterminable: name must be provided") {
		t.Errorf("a nameless update: %+v", a)
	}
	if a := h.do("PUT", "/api/v1/namespaces/ns/configmaps/none", `{"metadata":{"name":"other"}}`); a.code != 400 || !strings.Contains(a.body, "does not match the name on the URL") {
		t.Errorf("another's name: %+v", a)
	}
}

func TestUpdateThatChangesNothingKeepsTheRevision(t *testing.T) {
	h := start(t)
	ctx := within(t)
	c := h.client().CoreV1().ConfigMaps("ns")
	made := must(c.Create(ctx, configMap("a", map[string]string{"n": "1"}), metav1.CreateOptions{}))
	again, err := c.Update(ctx, made.DeepCopy(), metav1.UpdateOptions{})
	if err != nil || again.ResourceVersion != made.ResourceVersion {
		t.Fatalf("rv %s became %s, %v", made.ResourceVersion, again.ResourceVersion, err)
	}
	patched, err := c.Patch(ctx, "a", types.MergePatchType, []byte(`{"data":{"n":"1"}}`), metav1.PatchOptions{})
	if err != nil || patched.ResourceVersion != made.ResourceVersion {
		t.Fatalf("rv %s became %s, %v", made.ResourceVersion, patched.ResourceVersion, err)
	}
}

func TestStatusAndSpecAreApart(t *testing.T) {
	h := start(t)
	ctx := within(t)
	c := h.client().AppsV1().Deployments("ns")
	d := deployment("d", 3)
	d.Status.Replicas = 9
	made := must(c.Create(ctx, d, metav1.CreateOptions{}))
	if made.Status.Replicas != 0 || made.Generation != 1 || *made.Spec.Replicas != 3 {
		t.Fatalf("create kept %+v, generation %d", made.Status, made.Generation)
	}
	both := made.DeepCopy()
	both.Status.Replicas = 2
	*both.Spec.Replicas = 5
	status := must(c.UpdateStatus(ctx, both, metav1.UpdateOptions{}))
	if status.Status.Replicas != 2 || *status.Spec.Replicas != 3 || status.Generation != 1 {
		t.Fatalf("a status update made %d/%d generation %d", *status.Spec.Replicas, status.Status.Replicas, status.Generation)
	}
	both = status.DeepCopy()
	both.Status.Replicas = 7
	*both.Spec.Replicas = 5
	spec := must(c.Update(ctx, both, metav1.UpdateOptions{}))
	if spec.Status.Replicas != 2 || *spec.Spec.Replicas != 5 || spec.Generation != 2 {
		t.Fatalf("an update made %d/%d generation %d", *spec.Spec.Replicas, spec.Status.Replicas, spec.Generation)
	}
	labelled := spec.DeepCopy()
	labelled.Labels = map[string]string{"a": "b"}
	if got := must(c.Update(ctx, labelled, metav1.UpdateOptions{})); got.Generation != 2 {
		t.Fatalf("a label counted as a change of the spec: generation %d", got.Generation)
	}
	*labelled.Spec.Replicas = -1
	labelled.ResourceVersion = ""
	if _, err := c.Update(ctx, labelled, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.replicas: Invalid value: -1: must be greater than or equal to 0") {
		t.Fatalf("an invalid update: %v", err)
	}
}

func deployment(name string, replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns"}, Spec: appsv1.DeploymentSpec{Replicas: &replicas,
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "c", Image: "i", Env: []corev1.EnvVar{{Name: "E", Value: "1"}}}}}}}}
}

func TestDryRunChangesNothing(t *testing.T) {
	h := start(t)
	ctx := within(t)
	c := h.client().CoreV1().ConfigMaps("ns")
	dry := []string{metav1.DryRunAll}
	made, err := c.Create(ctx, configMap("a", nil), metav1.CreateOptions{DryRun: dry})
	if err != nil || made.UID == "" {
		t.Fatal(made, err)
	}
	if _, err := c.Get(ctx, "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fatalf("a dry run created: %v", err)
	}
	real := must(c.Create(ctx, configMap("a", nil), metav1.CreateOptions{}))
	change := real.DeepCopy()
	change.Data = map[string]string{"x": "y"}
	if got := must(c.Update(ctx, change, metav1.UpdateOptions{DryRun: dry})); got.Data["x"] != "y" {
		t.Fatal("the answer does not show the change")
	}
	if err := c.Delete(ctx, "a", metav1.DeleteOptions{DryRun: dry}); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(real, must(c.Get(ctx, "a", metav1.GetOptions{}))); d != "" {
		t.Fatalf("a dry run left its mark:\n%s", d)
	}
	if _, err := c.Create(ctx, configMap("b", nil), metav1.CreateOptions{DryRun: []string{"Some"}}); !apierrors.IsInvalid(err) {
		t.Fatalf("dryRun=Some: %v", err)
	}
}

func TestFieldValidation(t *testing.T) {
	h := start(t)
	body := `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{"foo":1,"replicas":1,"replicas":2}}`
	strict := h.do("POST", "/apis/apps/v1/namespaces/ns/deployments?fieldValidation=Strict", body)
	for _, text := range []string{`strict decoding error: unknown field \"spec.foo\"`, `duplicate field \"spec.replicas\"`} {
		if strict.code != 400 || !strings.Contains(strict.body, text) {
			t.Errorf("strict: want %s in %d %s", text, strict.code, strict.body)
		}
	}
	warn := h.do("POST", "/apis/apps/v1/namespaces/ns/deployments", body)
	if got := strings.Join(warn.header.Values("Warning"), ";"); warn.code != 201 || !strings.Contains(got, `299 - "unknown field \"spec.foo\""`) {
		t.Errorf("warn: %d %s", warn.code, got)
	}
	ignore := h.do("PUT", "/apis/apps/v1/namespaces/ns/deployments/d?fieldValidation=Ignore", body)
	if ignore.code != 200 || len(ignore.header.Values("Warning")) != 0 {
		t.Errorf("ignore: %+v", ignore)
	}
	patch := h.do("PATCH", "/apis/apps/v1/namespaces/ns/deployments/d?fieldValidation=Strict", `{"spec":{"bar":1}}`, "Content-Type", "application/merge-patch+json")
	if patch.code != 422 || !strings.Contains(patch.body, `strict decoding error: unknown field \"spec.bar\"`) || !strings.Contains(patch.body, `"field":"patch"`) {
		t.Errorf("strict patch: %+v", patch)
	}
	if a := h.do("POST", "/apis/apps/v1/namespaces/ns/deployments", `{"apiVersion":"v1","kind":"Pod"}`); a.code != 400 || !strings.Contains(a.body, "does not match the expected API version") {
		t.Errorf("another kind: %+v", a)
	}
	if a := h.do("POST", "/apis/apps/v1/namespaces/ns/deployments?fieldValidation=Strict", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: yy}\nspec: {bar: 1}\n", "Content-Type", "application/yaml"); a.code != 400 || !strings.Contains(a.body, "spec.bar") {
		t.Errorf("strict YAML: %+v", a)
	}
}

func TestSubresources(t *testing.T) {
	h := start(t)
	ctx := within(t)
	pods := h.client().CoreV1().Pods("ns")
	must(pods.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}}, metav1.CreateOptions{}))
	if a := h.do("POST", "/api/v1/namespaces/ns/pods/p/binding", `{"target":{"kind":"Node","name":"n9"}}`); a.code != 400 || !strings.Contains(a.body, `the binding names \"\"`) {
		t.Fatalf("a body that has to say its name got the URL's: %d %s", a.code, a.body)
	}
	if err := pods.Bind(ctx, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Target: corev1.ObjectReference{Kind: "Node", Name: "n1"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	p := must(pods.Get(ctx, "p", metav1.GetOptions{}))
	if p.Spec.NodeName != "n1" {
		t.Fatalf("bound to %q", p.Spec.NodeName)
	}
	p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"}}}
	p.Spec.NodeName = "n2"
	got := must(pods.UpdateEphemeralContainers(ctx, "p", p, metav1.UpdateOptions{}))
	if len(got.Spec.EphemeralContainers) != 1 || got.Spec.NodeName != "n1" {
		t.Fatalf("the subresource changed %+v", got.Spec)
	}
	if a := h.do("GET", "/api/v1/namespaces/ns/pods/p/nosuch", ""); a.code != 404 || !strings.Contains(a.body, noResource) {
		t.Errorf("an unknown subresource: %+v", a)
	}
}

func TestScale(t *testing.T) {
	h := start(t)
	ctx := within(t)
	c := h.client().AppsV1().Deployments("ns")
	must(c.Create(ctx, deployment("d", 2), metav1.CreateOptions{FieldManager: "me"}))
	s := must(c.GetScale(ctx, "d", metav1.GetOptions{}))
	if s.Spec.Replicas != 2 || s.Status.Selector != "app=d" {
		t.Fatalf("scale %+v", s)
	}
	s.Spec.Replicas = 6
	if s = must(c.UpdateScale(ctx, "d", s, metav1.UpdateOptions{FieldManager: "scaler"})); s.Spec.Replicas != 6 {
		t.Fatalf("scale %+v", s)
	}
	d := must(c.Get(ctx, "d", metav1.GetOptions{}))
	if *d.Spec.Replicas != 6 || d.Generation != 2 {
		t.Fatalf("replicas %d generation %d", *d.Spec.Replicas, d.Generation)
	}
	owner := ""
	for _, m := range d.ManagedFields {
		if strings.Contains(m.FieldsV1.String(), "f:replicas") {
			owner += m.Manager + "/" + m.Subresource
		}
	}
	if owner != "scaler/scale" {
		t.Errorf("replicas belong to %q", owner)
	}
	patched, err := h.jsonClient().AppsV1().Deployments("ns").Patch(ctx, "d", types.MergePatchType, []byte(`{"spec":{"replicas":1}}`), metav1.PatchOptions{}, "scale")
	if err != nil {
		t.Fatal(err)
	}
	_ = patched
	if d = must(c.Get(ctx, "d", metav1.GetOptions{})); *d.Spec.Replicas != 1 {
		t.Fatalf("replicas %d", *d.Spec.Replicas)
	}
	stale := s.DeepCopy()
	if _, err := c.UpdateScale(ctx, "d", stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Fatalf("a stale scale: %v", err)
	}
	if a := h.do("PATCH", "/apis/apps/v1/namespaces/ns/deployments/d/scale", `{"spec":{"replicas":-1}}`, "Content-Type", "application/merge-patch+json"); a.code != 422 {
		t.Fatalf("a negative scale: %+v", a)
	}
	if a := h.do("PATCH", "/apis/apps/v1/namespaces/ns/deployments/d/scale", `{"spec":{"replicas":"x"}}`, "Content-Type", "application/merge-patch+json"); a.code != 422 || !strings.Contains(a.body, `"field":"patch"`) {
		t.Fatalf("a scale that is no number: %+v", a)
	}
}

func TestClaims(t *testing.T) {
	h := start(t)
	ctx := within(t)
	c := h.client().CoreV1().Services("ns")
	make := func(name, ip string) (*corev1.Service, error) {
		return c.Create(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{ClusterIP: ip}}, metav1.CreateOptions{})
	}
	a := must(make("a", ""))
	b := must(make("b", ""))
	if a.Spec.ClusterIP == b.Spec.ClusterIP || a.Spec.ClusterIP == "" {
		t.Fatalf("two services got %q and %q", a.Spec.ClusterIP, b.Spec.ClusterIP)
	}
	if _, err := make("c", a.Spec.ClusterIP); !apierrors.IsInvalid(err) {
		t.Fatalf("a taken address: %v", err)
	}
	if _, err := make("a", ""); !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	b.Labels = map[string]string{"x": "y"}
	must(c.Update(ctx, b, metav1.UpdateOptions{}))
	must(make("c", ""))
	if _, err := make("d", ""); err == nil || !strings.Contains(err.Error(), "no address left") {
		t.Fatalf("three addresses served four services: %v", err)
	}
	if err := c.Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if d := must(make("d", "")); d.Spec.ClusterIP != a.Spec.ClusterIP {
		t.Fatalf("d got %q, %q was free", d.Spec.ClusterIP, a.Spec.ClusterIP)
	}
	// A server that opens the same store knows what is taken.
	again := start(t, func(cfg *apiserverConfig) { cfg.Store = shared{h.store} })
	if _, err := again.client().CoreV1().Services("ns").Create(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "e"}}, metav1.CreateOptions{}); err == nil {
		t.Fatal("after a restart an address was handed out twice")
	}
}
