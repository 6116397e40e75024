package core

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/kind"
)

func TestNamespaceLife(t *testing.T) {
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{"example.com/mine"}}}
	defaultNamespace(n)
	prepareNamespace(n, nil)
	want := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"kubernetes.io/metadata.name": "a"}},
		Spec: corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{"example.com/mine", "kubernetes"}}, Status: corev1.NamespaceStatus{Phase: "Active"}}
	if d := cmp.Diff(want, n); d != "" {
		t.Fatal(d)
	}
	var k *kind.Kind
	for _, x := range Group.Kinds {
		if x.Names.Kind == "Namespace" {
			k = x
		}
	}
	updated := n.DeepCopy()
	updated.Spec.Finalizers = nil
	prepareNamespace(updated, n)
	if len(updated.Spec.Finalizers) != 2 {
		t.Error("a plain update took the finalizers away")
	}
	k.OnDelete(n)
	if n.Status.Phase != corev1.NamespaceTerminating || !k.KeepDeleted(n) {
		t.Errorf("deleted: phase %s, kept %v", n.Status.Phase, k.KeepDeleted(n))
	}
	k.Subs[0].Replace(n, &corev1.Namespace{})
	if k.KeepDeleted(n) {
		t.Error("a finalized namespace is still kept")
	}
}

func TestSecretsAndConfigMapsFreeze(t *testing.T) {
	old := &corev1.Secret{Immutable: ptr.To(true), Type: "Opaque", Data: map[string][]byte{"a": []byte("x")}}
	now := old.DeepCopy()
	now.StringData = map[string]string{"a": "y"}
	defaultSecret(now)
	if now.StringData != nil || string(now.Data["a"]) != "y" {
		t.Errorf("stringData must go into data: %+v", now)
	}
	wantRefusal(t, "data", validateSecret(now, old), "data: Forbidden: field is immutable when `immutable` is set")
	thawed := old.DeepCopy()
	thawed.Immutable = nil
	wantRefusal(t, "thawed", validateSecret(thawed, old), "immutable: Forbidden")
	typed := old.DeepCopy()
	typed.Type = "example.com/x"
	wantRefusal(t, "type", validateSecret(typed, old), "type: Invalid value: \"example.com/x\": field is immutable")
	big := &corev1.Secret{Type: "Opaque", Data: map[string][]byte{"a": make([]byte, corev1.MaxSecretSize+1)}}
	wantRefusal(t, "size", validateSecret(big, nil), "data: Too long: may not be more than 1048576 bytes")
	was := &corev1.ConfigMap{Immutable: ptr.To(true), Data: map[string]string{"a": "x"}}
	wantRefusal(t, "config map", validateConfigMap(&corev1.ConfigMap{Immutable: ptr.To(true)}, was), "data: Forbidden: field is immutable")
}

func TestNodeUpdate(t *testing.T) {
	old := testNode()
	old.Spec.PodCIDR, old.Spec.ProviderID = "10.1.0.0/24", "a://b"
	defaultNode(old)
	if d := cmp.Diff([]string{"10.1.0.0/24"}, old.Spec.PodCIDRs); d != "" {
		t.Fatal("podCIDRs must follow podCIDR:", d)
	}
	now := old.DeepCopy()
	now.Spec.Unschedulable = true
	wantRefusal(t, "cordon", validateNode(now, old), "")
	now.Spec.PodCIDRs, now.Spec.ProviderID = []string{"10.2.0.0/24"}, "c"
	wantRefusal(t, "range", validateNode(now, old), `node updates may not change podCIDR except from "" to valid`)
	wantRefusal(t, "provider", validateNode(now, old), `node updates may not change providerID except from "" to valid`)
	now.Status.Addresses = append(now.Status.Addresses, now.Status.Addresses[0])
	wantRefusal(t, "addresses", validateNodeStatus(now, old), "status.addresses[2]: Duplicate value")
}

// What a removed feature had is dropped from the status, unless the node has it.
func TestNodeStatusHasNoConfiguration(t *testing.T) {
	old := testNode()
	now := old.DeepCopy()
	now.Status.Config = &corev1.NodeConfigStatus{Error: "x"}
	k := kindOf(t, "Node")
	k.PrepareStatus(now, old)
	if now.Status.Config != nil {
		t.Error("a node got a configuration status")
	}
	old.Status.Config = &corev1.NodeConfigStatus{Error: "x"}
	now = old.DeepCopy()
	if k.PrepareStatus(now, old); now.Status.Config == nil {
		t.Error("a node lost its configuration status")
	}
}

// A LimitRange may come without a name, as in Kubernetes.
func TestLimitRangeGetsAName(t *testing.T) {
	l := &corev1.LimitRange{}
	kindOf(t, "LimitRange").Prepare(l, nil)
	if uuid.Validate(l.Name) != nil {
		t.Errorf("its name is %q", l.Name)
	}
	named := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}
	if kindOf(t, "LimitRange").Prepare(named, nil); named.Name != "mine" {
		t.Errorf("one with a name became %q", named.Name)
	}
}

func kindOf(t *testing.T, name string) *kind.Kind {
	t.Helper()
	for _, k := range Group.Kinds {
		if k.Names.Kind == name {
			return k
		}
	}
	t.Fatalf("there is no kind %s", name)
	return nil
}

func TestNodeColumns(t *testing.T) {
	n := testNode()
	n.Labels = map[string]string{"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "edge"}
	n.CreationTimestamp = metav1.NewTime(testTime.Add(-90 * 60e9))
	n.Status.NodeInfo.KubeletVersion = "v1.36.0"
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	n.Spec.Unschedulable = true
	var got []any
	for _, c := range nodeColumns[:5] {
		got = append(got, c.Value(n, testTime))
	}
	if d := cmp.Diff([]any{"Ready,SchedulingDisabled", "edge,worker", "90m", "v1.36.0", "192.0.2.7"}, got); d != "" {
		t.Error(d)
	}
}

func TestTokenRequest(t *testing.T) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "robot", UID: "sa1"}}
	pod := newPod(func(p *corev1.Pod) { p.Spec.ServiceAccountName = "robot" })
	stranger := newPod(func(p *corev1.Pod) { p.Name = "stranger" })
	env := envWith(pod, stranger)
	env.Choices = kind.Settings{DefaultTokenTTL: 3600e9, MaxTokenTTL: 7200e9, TokenAudiences: []string{"api"}}
	env.Issue = func(_ context.Context, _, _ string, r *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
		return r, nil
	}
	for name, c := range map[string]struct {
		in   authenticationv1.TokenRequest
		want string // a part of the error; empty for success
		secs int64
	}{
		"plain":    {authenticationv1.TokenRequest{}, "", 3600},
		"long":     {authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](99999)}}, "", 7200},
		"short":    {authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](10)}}, "may not specify a duration less than 10 minutes", 0},
		"other":    {authenticationv1.TokenRequest{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, "must match the service account name if specified", 0},
		"uid":      {authenticationv1.TokenRequest{ObjectMeta: metav1.ObjectMeta{UID: "x"}}, "does not match the UID of the service account", 0},
		"pod":      {bound("Pod", "web", ""), "", 3600},
		"pod uid":  {bound("Pod", "web", "u9"), "the UID in the bound object reference (u9) does not match", 0},
		"stranger": {bound("Pod", "stranger", ""), "cannot bind token for serviceaccount", 0},
		"missing":  {bound("Secret", "none", ""), "not found", 0},
		"kind":     {bound("ConfigMap", "none", ""), "cannot bind token to object of type", 0},
	} {
		out, err := createToken(t.Context(), env, account, &c.in, metav1.CreateOptions{})
		if c.want != "" || err != nil {
			if err == nil || c.want == "" || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		r := out.(*authenticationv1.TokenRequest)
		if *r.Spec.ExpirationSeconds != c.secs || cmp.Diff([]string{"api"}, r.Spec.Audiences) != "" || r.Name != "robot" {
			t.Errorf("%s: %+v", name, r)
		}
		if b := r.Spec.BoundObjectRef; b != nil && b.UID != "u1" {
			t.Errorf("%s: the token is bound to uid %q", name, b.UID)
		}
	}
}

func bound(kindName, name, uid string) authenticationv1.TokenRequest {
	return authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: kindName, Name: name, UID: types.UID(uid)}}}
}

func TestClaimUpdate(t *testing.T) {
	old := &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{"ReadWriteOnce"},
		Resources: corev1.VolumeResourceRequirements{Requests: amounts("storage", "2Gi")}}}
	DefaultClaim(old)
	size := func(text string) func(*corev1.PersistentVolumeClaim) {
		return func(c *corev1.PersistentVolumeClaim) { c.Spec.Resources.Requests = amounts("storage", text) }
	}
	bind := func(c *corev1.PersistentVolumeClaim) {
		c.Spec.VolumeName, c.Status.Phase, c.Status.Capacity = "v", corev1.ClaimBound, amounts("storage", "2Gi")
	}
	boundClaim := old.DeepCopy()
	bind(boundClaim)
	for name, c := range map[string]struct {
		old    *corev1.PersistentVolumeClaim
		change func(*corev1.PersistentVolumeClaim)
		want   string
	}{
		"bind":            {old, func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "v" }, ""},
		"grow unbound":    {old, size("3Gi"), "spec is immutable after creation except resources.requests"},
		"grow":            {boundClaim, size("3Gi"), ""},
		"shrink":          {boundClaim, size("1Gi"), "field can not be less than status.capacity"},
		"rebind":          {boundClaim, func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "w" }, "spec is immutable"},
		"name the class":  {boundClaim, func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = ptr.To("fast") }, ""},
		"attribute class": {boundClaim, func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = ptr.To("fast") }, ""},
	} {
		now := c.old.DeepCopy()
		c.change(now)
		wantRefusal(t, name, validateClaim(now, c.old), c.want)
	}
}

func TestEveryKindIsDeclaredOnce(t *testing.T) {
	want := []string{"Binding", "ComponentStatus", "ConfigMap", "Endpoints", "LimitRange", "Namespace", "Node", "PersistentVolume", "PersistentVolumeClaim",
		"Pod", "PodTemplate", "ReplicationController", "ResourceQuota", "Secret", "Service", "ServiceAccount"}
	count := map[string]int{}
	for _, k := range Group.Kinds {
		count[k.Names.Kind]++
	}
	for _, name := range want {
		if count[name] != 1 {
			t.Errorf("%s is declared %d times", name, count[name])
		}
	}
}
