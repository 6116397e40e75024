package verbs

import (
	"fmt"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/yare-project/yare/apiserver/stored"
	"github.com/yare-project/yare/kind"
)

// The quick way of passing over objects leaves out nothing that the selector selects.
func TestSelectorsSelectByTheLabelsThemselves(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	var objects []*stored.Object
	for range 500 {
		set := map[string]string{}
		for range r.IntN(6) {
			set[fmt.Sprint("k", r.IntN(8))] = fmt.Sprint("v", r.IntN(4))
		}
		objects = append(objects, stored.New(podKind, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: set}}))
	}
	rq := &Request{Version: &podKind.Versions[0]}
	for _, text := range []string{"k1=v1", "k1==v2,k2=v0", "k1!=v1", "k3 in (v0,v1)", "k3 notin (v0,v1)", "k4", "!k4", "k4,k5 in (v3),k1!=v0", "k1=", "k9=v1"} {
		s, err := selectorOf(podKind, rq, text, "")
		if err != nil {
			t.Fatal(err)
		}
		want := must(labels.Parse(text))
		for _, o := range objects {
			if got := s.matches(o); got != want.Matches(labels.Set(o.Hub().GetLabels())) {
				t.Fatalf("%s: %v selected: %v", text, o.Hub().GetLabels(), got)
			}
		}
		last := objects[0].Deleted(9)
		if s.matches(last) != s.matches(objects[0]) {
			t.Errorf("%s: a deleted object's last state is selected otherwise", text)
		}
	}
}

// What can be selected by, and the words for what cannot, are those of Kubernetes.
func TestSelectableFields(t *testing.T) {
	value := func(kind.Object) string { return "" }
	own := map[string]func(kind.Object) string{"spec.x": value}
	for _, c := range []struct {
		scope   kind.Scope
		fields  map[string]func(kind.Object) string
		refusal string
		name    string
		want    string
	}{
		{name: "metadata.name"},
		{name: "metadata.namespace"},
		{name: "spec.x", want: `"spec.x" is not a known field selector: only "metadata.name", "metadata.namespace"`},
		{scope: kind.Cluster, name: "metadata.namespace"},
		{fields: own, name: "spec.x"},
		{fields: own, name: "metadata.namespace"},
		{fields: own, name: "spec.y", want: "field label not supported: spec.y"},
		{scope: kind.Cluster, fields: own, name: "metadata.name"},
		{scope: kind.Cluster, fields: own, name: "metadata.namespace", want: "field label not supported: metadata.namespace"},
		{fields: own, refusal: "no %q here", name: "spec.y", want: `no "spec.y" here`},
	} {
		k := &kind.Kind{Scope: c.scope, FieldRefusal: c.refusal, Versions: []kind.Version{{Fields: c.fields}}}
		_, err := selectorOf(k, &Request{Version: &k.Versions[0]}, "", c.name+"=v")
		if c.want == "" && err != nil || c.want != "" && (err == nil || err.Error() != c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
