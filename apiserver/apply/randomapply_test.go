package apply_test

import (
	"fmt"
	"math/rand"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/managedfields"
	applyconfigurations "k8s.io/client-go/applyconfigurations"

	"github.com/yare-project/yare/apiserver/apply"
	"github.com/yare-project/yare/kind"
)

// randomConfig is a configuration of a Pod with some of the fields that others write too.
func randomConfig(r *rand.Rand) *unstructured.Unstructured {
	meta, spec := map[string]any{"name": "p"}, map[string]any{}
	object := map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": meta}
	sometimes := func(to map[string]any, key string, value func() any) {
		if r.Intn(3) > 0 {
			to[key] = value()
		}
	}
	few := func() any { return fmt.Sprint(r.Intn(2)) }
	sometimes(meta, "labels", func() any {
		labels := map[string]any{fmt.Sprint("k", r.Intn(3)): few()}
		for i := range []int{0, 600}[max(0, r.Intn(8)-6)] { // enough to be taken in order
			labels[fmt.Sprint("wide", i)] = few()
		}
		return labels
	})
	sometimes(meta, "finalizers", func() any { return []any{fmt.Sprint("example.com/f", r.Intn(3))} })
	sometimes(object, "spec", func() any { return spec })
	sometimes(spec, "nodeName", few)
	sometimes(spec, "tolerations", func() any { return []any{map[string]any{"key": few()}} })
	sometimes(spec, "securityContext", func() any {
		return []any{map[string]any{}, map[string]any{"runAsUser": int64(r.Intn(2))}, nil}[r.Intn(3)]
	})
	sometimes(spec, "containers", func() any {
		var out []any
		for i := range 4 {
			if r.Intn(2) > 0 {
				c := map[string]any{"name": fmt.Sprint("c", i), "image": few()}
				sometimes(c, "env", func() any { return []any{map[string]any{"name": "E1", "value": few()}, map[string]any{"name": "E2"}} })
				sometimes(c, "resources", func() any {
					return map[string]any{"requests": map[string]any{"cpu": []any{"1", "1000m", "2"}[r.Intn(3)]}}
				})
				out = append(out, c)
			}
		}
		return out
	})
	if r.Intn(4) == 0 {
		object["status"] = map[string]any{"message": few()}
	}
	return &unstructured.Unstructured{Object: object}
}

// Whatever clients apply, between whatever writes, the object and its owners are those that Kubernetes' own field manager makes.
func TestRandomAppliesAreThoseOfKubernetes(t *testing.T) {
	start := *seed
	if start == 0 {
		start = time.Now().UnixNano()
	}
	s := scheme(t)
	types, reference := apply.NewTypes(s), managedfields.TypeConverter(applyconfigurations.NewTypeConverter(s))
	v := &pods.Versions[0]
	for run := range int64(80) {
		r := rand.New(rand.NewSource(start + run))
		ours, theirs := apply.For(pods, types), apply.For(pods, reference)
		var live kind.Object = &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: "p"}}
		config := randomConfig(r)
		for step := range 25 {
			manager, force := []string{"kubectl", "one", "two"}[r.Intn(3)], r.Intn(3) > 0
			var outcome [2]string
			var out [2]kind.Object
			perform := func(i int, m *apply.Managers, change func(*corev1.Pod)) kind.Object {
				if change != nil {
					next := live.DeepCopyObject().(*corev1.Pod)
					change(next)
					out[i] = update(t, m, live, next, v, "", "writer")
					return out[i]
				}
				got, err := m.Apply(live, config.DeepCopy(), v, "", manager, force)
				out[i], outcome[i] = got, fmt.Sprint(err)
				return got
			}
			var change func(*corev1.Pod)
			switch {
			case step > 0 && r.Intn(3) == 0:
				at := r.Int63()
				change = func(p *corev1.Pod) {
					q := rand.New(rand.NewSource(at))
					changes[q.Intn(len(changes))](q, p)
				}
			case r.Intn(3) > 0:
				config = randomConfig(r)
			}
			before := live.DeepCopyObject()
			inOneSecond(t, func() kind.Object { return perform(0, ours, change) }, func() kind.Object { return perform(1, theirs, change) })
			replay := fmt.Sprintf("step %d of run %d: go test ./apiserver/apply -run RandomApplies -seed %d", step, run, start+run)
			if d := cmp.Diff(before, live); d != "" {
				t.Fatalf("the live object was changed in %s\n%s", replay, d)
			}
			if outcome[0] != outcome[1] {
				t.Fatalf("%s, not %s, in %s", outcome[0], outcome[1], replay)
			}
			if outcome[0] != "<nil>" && outcome[0] != "" {
				continue
			}
			if d := cmp.Diff(timed(out[1]), timed(out[0])); d != "" {
				t.Fatalf("owners differ after %s\n%s", replay, d)
			}
			if d := cmp.Diff(untracked(out[1]), untracked(out[0])); d != "" {
				t.Fatalf("objects differ after %s\n%s", replay, d)
			}
			live = out[0].DeepCopyObject().(kind.Object)
			live.SetUID("1")
		}
	}
}

func untracked(o kind.Object) kind.Object {
	o = o.DeepCopyObject().(kind.Object)
	o.SetManagedFields(nil)
	return o
}
