package apply_test

import (
	"flag"
	"fmt"
	"math/rand"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/managedfields"
	applyconfigurations "k8s.io/client-go/applyconfigurations"
	"sigs.k8s.io/randfill"

	"github.com/yare-project/yare/apiserver/apply"
	"github.com/yare-project/yare/kind"
)

var seed = flag.Int64("seed", 0, "seed of the random tests; 0 takes the time")

// changes are what clients do to a pod, in spec, status and metadata.
var changes = []func(r *rand.Rand, p *corev1.Pod){
	func(*rand.Rand, *corev1.Pod) {},
	func(r *rand.Rand, p *corev1.Pod) {
		p.Labels = map[string]string{fmt.Sprint("k", r.Intn(3)): fmt.Sprint(r.Intn(2))}
	},
	func(_ *rand.Rand, p *corev1.Pod) { p.Labels, p.Annotations = nil, map[string]string{} },
	func(r *rand.Rand, p *corev1.Pod) {
		p.Finalizers = append(p.Finalizers, fmt.Sprint("example.com/f", r.Intn(3)))
	},
	func(_ *rand.Rand, p *corev1.Pod) { p.Finalizers = nil },
	func(r *rand.Rand, p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{UID: "u", Name: fmt.Sprint(r.Intn(2)), Kind: "K", APIVersion: "v1"}}
	},
	func(r *rand.Rand, p *corev1.Pod) { p.Spec.NodeName = fmt.Sprint(r.Intn(2)) },
	func(r *rand.Rand, p *corev1.Pod) {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: fmt.Sprint("c", r.Intn(4)), Image: "i"})
	},
	func(r *rand.Rand, p *corev1.Pod) {
		if n := len(p.Spec.Containers); n > 0 {
			c := &p.Spec.Containers[r.Intn(n)]
			c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprint("E", r.Intn(3)), Value: fmt.Sprint(r.Intn(2))})
			c.Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse(fmt.Sprint(r.Intn(3)))}
		}
	},
	func(_ *rand.Rand, p *corev1.Pod) { p.Spec.Containers = nil },
	func(r *rand.Rand, p *corev1.Pod) {
		p.Spec.Tolerations = []corev1.Toleration{{Key: fmt.Sprint(r.Intn(2))}, {Key: "x"}, {Key: "x"}}
	},
	func(r *rand.Rand, p *corev1.Pod) {
		p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(r.Intn(2)))}
	},
	func(_ *rand.Rand, p *corev1.Pod) { p.Spec.SecurityContext = &corev1.PodSecurityContext{} },
	func(r *rand.Rand, p *corev1.Pod) { p.Status.Message = fmt.Sprint(r.Intn(3)) },
	func(r *rand.Rand, p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodConditionType(fmt.Sprint(r.Intn(3))), Status: "True"}, {Type: "A"}}
	},
	func(r *rand.Rand, p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", RestartCount: int32(r.Intn(3))}}
	},
	func(_ *rand.Rand, p *corev1.Pod) { p.Status = corev1.PodStatus{} },
	func(_ *rand.Rand, p *corev1.Pod) { p.ManagedFields = []metav1.ManagedFieldsEntry{} },
	func(_ *rand.Rand, p *corev1.Pod) { p.ManagedFields = nil },
	func(r *rand.Rand, p *corev1.Pod) {
		p.ManagedFields = append(p.ManagedFields, metav1.ManagedFieldsEntry{Manager: "hand", Operation: metav1.ManagedFieldsOperationApply, APIVersion: "v1", FieldsType: "FieldsV1",
			Time: &metav1.Time{Time: time.Unix(int64(r.Intn(1000)), 0)}, FieldsV1: metav1.NewFieldsV1(`{"f:spec": {"f:nodeName": {}, "f:hostname":{}}, "f:metadata":{"f:labels":{"f:k1":{}, ".":{}}}}`)})
	},
	func(r *rand.Rand, p *corev1.Pod) {
		for i := range p.ManagedFields {
			if r.Intn(4) == 0 {
				p.ManagedFields[i].FieldsType = "other"
			} else if r.Intn(4) == 0 {
				p.ManagedFields[i].APIVersion = "v0"
			}
		}
	},
	func(r *rand.Rand, p *corev1.Pod) { // a set from a time when tolerations were no atomic list
		p.ManagedFields = append(p.ManagedFields, metav1.ManagedFieldsEntry{Manager: "old", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:tolerations":{"i:0":{"f:key":{}}}}}`)})
	},
}

// Whatever clients write, in whatever order, the owners are those that Kubernetes' own field manager finds.
func TestRandomWritesHaveTheOwnersOfKubernetes(t *testing.T) {
	start := *seed
	if start == 0 {
		start = time.Now().UnixNano()
	}
	s := scheme(t)
	types := apply.NewTypes(s)
	reference := managedfields.TypeConverter(applyconfigurations.NewTypeConverter(s))
	v := &pods.Versions[0]
	for run := range int64(60) {
		r := rand.New(rand.NewSource(start + run))
		ours, theirs := apply.For(pods, types), apply.For(pods, reference)
		var live kind.Object = &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
		next := pod(nil)
		for step := range 25 {
			sub, manager := []string{"", "status"}[r.Intn(2)], fmt.Sprint("m", r.Intn(4+r.Intn(12)))
			for range r.Intn(3) {
				changes[r.Intn(len(changes))](r, next)
			}
			got, want := inOneSecond(t, func() kind.Object { return update(t, ours, live, next, v, sub, manager) },
				func() kind.Object { return update(t, theirs, live, next, v, sub, manager) })
			if d := cmp.Diff(timed(want), timed(got)); d != "" {
				t.Fatalf("owners differ after step %d of run %d: go test ./apiserver/apply -run RandomWrites -seed %d\n%s", step, run, start+run, d)
			}
			live, next = got, got.DeepCopyObject().(*corev1.Pod)
		}
	}
}

func update(t *testing.T, m *apply.Managers, live kind.Object, next *corev1.Pod, v *kind.Version, sub, manager string) kind.Object {
	out, err := m.Update(live, next.DeepCopy(), v, sub, manager)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// inOneSecond runs both within one second of the clock, by which entries are ordered.
func inOneSecond(t *testing.T, a, b func() kind.Object) (kind.Object, kind.Object) {
	for range 100 {
		second := time.Now().Unix()
		x, y := a(), b()
		if time.Now().Unix() == second {
			return x, y
		}
	}
	t.Fatal("two updates never fit into one second")
	return nil, nil
}

// timed are the entries with their times, as far as they are not of this moment.
func timed(o kind.Object) []string {
	out := entries(o)
	for i, m := range o.GetManagedFields() {
		when := "never"
		if m.Time != nil {
			when = "just now"
			if time.Since(m.Time.Time) > time.Minute {
				when = m.Time.UTC().String()
			}
		}
		out[i] += " " + when
	}
	return out
}

// What two objects of one shape differ in must not matter to who owns what: small values and few keys make many objects of few shapes.
func TestRandomCreationsHaveTheOwnersOfKubernetes(t *testing.T) {
	start := *seed
	if start == 0 {
		start = time.Now().UnixNano()
	}
	r := rand.New(rand.NewSource(start))
	fill := randfill.New().NilChance(0.6).NumElements(0, 3).MaxDepth(12).Funcs(
		func(s *string, _ randfill.Continue) { *s = []string{"", "a", "b"}[r.Intn(3)] },
		func(n *int32, _ randfill.Continue) { *n = int32(r.Intn(3)) },
		func(n *int64, _ randfill.Continue) { *n = int64(r.Intn(3)) },
		func(q *resource.Quantity, _ randfill.Continue) {
			*q = *resource.NewQuantity(int64(r.Intn(2)), resource.DecimalSI)
		},
		func(v *intstr.IntOrString, _ randfill.Continue) { *v = intstr.FromInt32(int32(r.Intn(2))) },
		func(d *metav1.Time, _ randfill.Continue) { *d = metav1.Unix(int64(r.Intn(2)*1000), 0) },
		func(d *metav1.MicroTime, _ randfill.Continue) {
			*d = metav1.NewMicroTime(time.Unix(int64(r.Intn(2)*1000), 0))
		},
		func(f *metav1.FieldsV1, _ randfill.Continue) { f.SetRawString(`{"f:a":{}}`) },
		func(m *metav1.TypeMeta, _ randfill.Continue) {},
	)
	s := scheme(t)
	types := apply.NewTypes(s)
	reference := managedfields.TypeConverter(applyconfigurations.NewTypeConverter(s))
	for _, k := range []*kind.Kind{pods, services, deployments, nodes, endpoints, configMaps} {
		ours, theirs := apply.For(k, types), apply.For(k, reference)
		v := &k.Versions[0]
		for i := range 250 {
			obj := k.New()
			// Structures repeat, with other values in them: those must not matter, or make another shape.
			fill.RandSource(rand.NewSource(start + int64(i%10))).Fill(obj)
			obj.GetObjectKind().SetGroupVersionKind(k.Hub)
			obj.SetManagedFields(nil)
			create := func(m *apply.Managers) kind.Object {
				live := k.New()
				live.GetObjectKind().SetGroupVersionKind(k.Hub)
				out, err := m.Update(live, obj.DeepCopyObject().(kind.Object), v, "", "me")
				if err != nil {
					t.Fatal(err)
				}
				return out
			}
			got, want := inOneSecond(t, func() kind.Object { return create(ours) }, func() kind.Object { return create(theirs) })
			if d := cmp.Diff(timed(want), timed(got)); d != "" {
				t.Fatalf("%s %d: go test ./apiserver/apply -run RandomCreations -seed %d\n%s", k.Names.Kind, i, start, d)
			}
		}
	}
}

// Objects of one shape share their set of fields; whatever names a field in it makes another shape.
func TestShapes(t *testing.T) {
	m := apply.For(pods, apply.NewTypes(scheme(t)))
	owned := func(change func(*corev1.Pod)) *metav1.FieldsV1 {
		p := pod(change)
		out, err := m.Update(&corev1.Pod{TypeMeta: p.TypeMeta}, p, &pods.Versions[0], "", "me")
		if err != nil || len(out.GetManagedFields()) != 1 {
			t.Fatal(entries(out), err)
		}
		return out.GetManagedFields()[0].FieldsV1
	}
	first := owned(nil)
	for name, change := range map[string]func(*corev1.Pod){
		"name":   func(p *corev1.Pod) { p.Name, p.UID = "other", "2" },
		"label":  func(p *corev1.Pod) { p.Labels["a"] = "other" },
		"node":   func(p *corev1.Pod) { p.Spec.NodeName = "other" },
		"probe":  func(p *corev1.Pod) { p.Spec.Containers[0].LivenessProbe.HTTPGet.Port = intstr.FromInt32(1) },
		"status": func(p *corev1.Pod) { p.Status.Message = "not the creator's" },
	} {
		if owned(change) != first {
			t.Errorf("another %s: another set was made", name)
		}
	}
	for name, change := range map[string]func(*corev1.Pod){
		"label":     func(p *corev1.Pod) { p.Labels["b"] = "" },
		"container": func(p *corev1.Pod) { p.Spec.Containers[0].Name = "d" },
		"port":      func(p *corev1.Pod) { p.Spec.Containers[0].Ports[0].ContainerPort = 81 },
		"no node":   func(p *corev1.Pod) { p.Spec.NodeName = "" },
		"finalizer": func(p *corev1.Pod) { p.Finalizers = []string{"example.com/f"} },
	} {
		if got := owned(change); got == first || got.Equal(*first) {
			t.Errorf("%s: the same fields: %s", name, got)
		}
	}
}

// Many requests of one kind share what is remembered of its sets.
func TestConcurrentWrites(t *testing.T) {
	m := apply.For(pods, apply.NewTypes(scheme(t)))
	v := &pods.Versions[0]
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewSource(int64(i % 4)))
			var live kind.Object = &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
			next := pod(nil)
			for range 40 {
				changes[r.Intn(len(changes))](r, next)
				out, err := m.Update(live, next, v, []string{"", "status"}[r.Intn(2)], fmt.Sprint("m", r.Intn(3)))
				if err != nil {
					t.Error(err)
					return
				}
				live, next = out, out.DeepCopyObject().(*corev1.Pod)
			}
		})
	}
	wg.Wait()
}
