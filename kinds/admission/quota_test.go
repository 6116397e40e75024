package admission_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/yare-project/yare/internal/quota"
	"github.com/yare-project/yare/kind"
	"github.com/yare-project/yare/kinds/admission"
	"github.com/yare-project/yare/kinds/fake"
)

func amounts(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = apiresource.MustParse(pairs[i+1])
	}
	return out
}

func quotaOf(name string, hard, used corev1.ResourceList) *corev1.ResourceQuota {
	q := &corev1.ResourceQuota{ObjectMeta: meta("ns", name), Spec: corev1.ResourceQuotaSpec{Hard: hard}, Status: corev1.ResourceQuotaStatus{Hard: hard, Used: used}}
	q.UID, q.ResourceVersion = types.UID(name), "1"
	return q
}

func usedOf(t *testing.T, env *fake.Env, name string) corev1.ResourceList {
	t.Helper()
	obj, err := env.Get(context.Background(), corev1.Resource("resourcequotas"), "ns", name)
	if err != nil {
		t.Fatal(err)
	}
	return obj.(*corev1.ResourceQuota).Status.Used
}

func asking(name, cpu string) *corev1.Pod {
	return pod(name, corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: amounts("cpu", cpu)}}}})
}

func TestQuotaRefusals(t *testing.T) {
	dry := create("pods", "", asking("p", "1"))
	dry.DryRun = true
	resize := update("pods", "", "resize", asking("p", "3"), asking("p", "2"))
	for name, test := range map[string]struct {
		request *kind.AdmissionRequest
		want    string
		used    string // cpu afterwards
	}{
		"fits":                    {create("pods", "", asking("p", "1")), "", "3"},
		"exactly":                 {create("pods", "", asking("p", "2")), "", "4"},
		"too much":                {create("pods", "", asking("p", "2500m")), `pods "p" is forbidden: exceeded quota: q, requested: requests.cpu=2500m, used: requests.cpu=2, limited: requests.cpu=4`, "2"},
		"says nothing":            {create("pods", "", pod("p", corev1.PodSpec{})), `pods "p" is forbidden: failed quota: q: must specify requests.cpu for: c`, "2"},
		"dry":                     {dry, "", "2"},
		"grows":                   {resize, "", "3"},
		"another label":           {update("pods", "", "", asking("p", "9"), asking("p", "2")), "", "2"},
		"what is not bounded":     {create("configmaps", "", &corev1.ConfigMap{ObjectMeta: meta("ns", "c")}), "", "2"},
		"what is not counted":     {create("secrets", "", &corev1.Secret{ObjectMeta: meta("ns", "s")}), `secrets "s" is forbidden: status unknown for quota: q, resources: count/secrets`, "2"},
		"something there already": {create("services", "", &corev1.Service{ObjectMeta: meta("ns", "there")}), "", "2"},
	} {
		t.Run(name, func(t *testing.T) {
			env := world()
			env.Put("", "services", &corev1.Service{ObjectMeta: meta("ns", "there")})
			env.Put("", "resourcequotas", quotaOf("q", amounts("requests.cpu", "4", "count/secrets", "1", "services", "5"), amounts("requests.cpu", "2", "services", "1")))
			_, err := admit(env, test.request)
			refused(t, err, test.want)
			want := amounts("requests.cpu", test.used, "services", "1")
			if diff := cmp.Diff(want, usedOf(t, env, "q")); diff != "" {
				t.Errorf("used (-want +got)\n%s", diff)
			}
		})
	}
}

// racing is a cluster in which somebody takes the rest of a quota between the look at it and the charge.
type racing struct {
	*fake.Env
	quota string
	rest  corev1.ResourceList
}

func (r racing) Change(ctx context.Context, gr schema.GroupResource, namespace, name string, f func(kind.Object) error) (kind.Object, error) {
	if name == r.quota {
		if _, err := r.Env.Change(ctx, gr, namespace, name, func(o kind.Object) error {
			quota.AddTo(o.(*corev1.ResourceQuota).Status.Used, r.rest)
			return nil
		}); err != nil {
			return nil, err
		}
	}
	return r.Env.Change(ctx, gr, namespace, name, f)
}

// Of two quotas the second turns out to be full: the first is counted again, and nothing stays open.
func TestAChargeOfAllOrNone(t *testing.T) {
	env := world()
	env.Put("", "resourcequotas", quotaOf("a", amounts("pods", "9"), amounts("pods", "1")))
	env.Put("", "resourcequotas", quotaOf("b", amounts("pods", "2"), amounts("pods", "1")))
	ledger := quota.NewLedger()
	var recounts []string
	ledger.Watch(func(namespace string) { recounts = append(recounts, namespace) }, func() {})
	_, validators := admission.New(admission.Config{Quota: ledger})
	p := asking("p", "1")
	p.UID = "p"
	var err error
	for _, v := range validators {
		if v.Name() == "ResourceQuota" {
			err = v.Validate(context.Background(), racing{env, "b", amounts("pods", "1")}, create("pods", "", p))
		}
	}
	refused(t, err, "exceeded quota: b, requested: pods=1, used: pods=2, limited: pods=2")
	if diff := cmp.Diff([]string{"ns"}, recounts); diff != "" {
		t.Errorf("counted again (-want +got)\n%s", diff)
	}
	if _, more := ledger.Expire(time.Time{}); more {
		t.Error("a charge is still open")
	}
}

func TestStorageIsProtectedAndGrowsByTheRules(t *testing.T) {
	for resource, obj := range map[string]kind.Object{
		"persistentvolumes": &corev1.PersistentVolume{ObjectMeta: meta("", "v")}, "persistentvolumeclaims": &corev1.PersistentVolumeClaim{ObjectMeta: meta("ns", "c")},
	} {
		if _, err := admit(world(), create(resource, "", obj)); err != nil || len(obj.GetFinalizers()) != 1 {
			t.Errorf("%s: finalizers %v, %v", resource, obj.GetFinalizers(), err)
		}
	}
	claim := func(class, size string, phase corev1.PersistentVolumeClaimPhase) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: meta("ns", "c"), Status: corev1.PersistentVolumeClaimStatus{Phase: phase}, Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, Resources: corev1.VolumeResourceRequirements{Requests: amounts("storage", size)}}}
	}
	for name, test := range map[string]struct {
		class, size string
		phase       corev1.PersistentVolumeClaimPhase
		want        string
	}{
		"grows":             {"elastic", "2Gi", corev1.ClaimBound, ""},
		"stays":             {"stiff", "1Gi", corev1.ClaimBound, ""},
		"is not bound":      {"elastic", "2Gi", corev1.ClaimPending, "Only bound persistent volume claims can be expanded"},
		"may not":           {"stiff", "2Gi", corev1.ClaimBound, "the storageclass that provisions the pvc must support resize"},
		"class is not here": {"gone", "2Gi", corev1.ClaimBound, "the storageclass that provisions the pvc must support resize"},
	} {
		t.Run(name, func(t *testing.T) {
			env := world()
			env.Put(storagev1.GroupName, "storageclasses", &storagev1.StorageClass{ObjectMeta: meta("", "elastic"), AllowVolumeExpansion: ptr.To(true)})
			env.Put(storagev1.GroupName, "storageclasses", &storagev1.StorageClass{ObjectMeta: meta("", "stiff")})
			_, err := admit(env, update("persistentvolumeclaims", "", "", claim(test.class, test.size, test.phase), claim(test.class, "1Gi", test.phase)))
			refused(t, err, test.want)
		})
	}
}

func TestABoundPodKnowsItsZone(t *testing.T) {
	env := world()
	node := &corev1.Node{ObjectMeta: meta("", "n")}
	node.Labels = map[string]string{"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r", "other": "o"}
	env.Put("", "nodes", node)
	b := &corev1.Binding{ObjectMeta: meta("ns", "p"), Target: corev1.ObjectReference{Kind: "Node", Name: "n"}}
	r := &kind.AdmissionRequest{Operation: admissionv1.Create, User: env.Who, Old: pod("p", corev1.PodSpec{}), Body: b, Ref: ref("", "v1", "pods", "ns", "p", "binding")}
	if _, err := admit(env, r); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r"}
	if diff := cmp.Diff(want, b.Labels); diff != "" {
		t.Errorf("labels of the binding (-want +got)\n%s", diff)
	}
}
