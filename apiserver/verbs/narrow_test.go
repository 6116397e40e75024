package verbs

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/randfill"

	"github.com/yare-project/yare/apiserver/stored"
	"github.com/yare-project/yare/kind"
)

var podGroup = kind.Group{Versions: []string{"v1"}, AddToScheme: []func(*runtime.Scheme) error{corev1.AddToScheme}}
var podKind = kind.Add(&podGroup, kind.Def[corev1.Pod]{Names: kind.Names{Plural: "pods"}, Scope: kind.Namespaced})

func testPatcher(typ types.PatchType, body []byte, warnings *[]string) *patcher {
	rq := &Request{Version: &podKind.Versions[0], Warn: func(text string) { *warnings = append(*warnings, text) }}
	return &patcher{r: &Resource{Kind: podKind}, rq: rq, edit: &Edit{}, typ: typ, body: body, strict: metav1.FieldValidationWarn}
}

// Whatever the narrow way takes on, it does as the general one does.
func sameBothWays(t *testing.T, old *stored.Object, typ types.PatchType, body []byte) (narrow bool) {
	t.Helper()
	before := old.Hub().DeepCopyObject()
	var warnedNarrow, warnedWhole []string
	sameStatus(t, old, typ, body)
	got, ok, err := testPatcher(typ, body, &warnedNarrow).narrow(old)
	if !ok {
		return false
	}
	want, wantErr := testPatcher(typ, body, &warnedWhole).whole(old)
	// A patch with several faults is refused for any of them: its fields are walked in the order of a map.
	if (err == nil) != (wantErr == nil) || apierrors.ReasonForError(err) != apierrors.ReasonForError(wantErr) {
		t.Fatalf("%s %s:\nnarrow %v\nwhole  %v", typ, body, err, wantErr)
	}
	slices.Sort(warnedNarrow)
	slices.Sort(warnedWhole)
	if d := cmp.Diff(warnedWhole, warnedNarrow); d != "" {
		t.Fatalf("%s %s: warnings (-whole +narrow):\n%s", typ, body, d)
	}
	if err == nil && !equality.Semantic.DeepEqual(want, got) {
		t.Fatalf("%s %s (-whole +narrow):\n%s", typ, body, cmp.Diff(want, got))
	}
	if !equality.Semantic.DeepEqual(before, old.Hub()) {
		t.Fatalf("%s %s changed the stored object:\n%s", typ, body, cmp.Diff(before, old.Hub()))
	}
	return true
}

// sameStatus compares what comes out of a patch through the status subresource.
func sameStatus(t *testing.T, old *stored.Object, typ types.PatchType, body []byte) {
	t.Helper()
	var warnings []string
	narrow, whole := testPatcher(typ, body, &warnings), testPatcher(typ, body, &warnings)
	narrow.sub, whole.sub = "status", "status"
	got, ok, err := narrow.narrow(old)
	if !ok || err != nil {
		return // the caller compares refusals
	}
	want, err := whole.whole(old)
	if err != nil {
		t.Fatalf("%s %s: %v", typ, body, err)
	}
	narrow.edit.Sub, whole.edit.Sub = "status", "status"
	r := &Resource{Kind: podKind}
	got, want = r.separate(narrow.rq, narrow.edit, got, old.Hub()), r.separate(whole.rq, whole.edit, want, old.Hub())
	if !equality.Semantic.DeepEqual(want, got) {
		t.Fatalf("%s %s of the status (-whole +narrow):\n%s", typ, body, cmp.Diff(want, got))
	}
}

func TestNarrowPatchesAreAsTheGeneralOnes(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	fill := randfill.NewWithSeed(int64(seed)).NilChance(0.5).NumElements(1, 3).MaxDepth(12).Funcs(
		func(q *resource.Quantity, c randfill.Continue) {
			*q = *resource.NewQuantity(c.Int63n(1000), resource.BinarySI)
		},
		func(v *intstr.IntOrString, c randfill.Continue) { *v = intstr.FromInt32(c.Int31n(100)) },
		func(tm *metav1.Time, c randfill.Continue) { *tm = metav1.Unix(c.Int63n(1<<31), 0) },
		func(f *metav1.FieldsV1, c randfill.Continue) { f.Raw = []byte(`{"f:a":{}}`) },
		func(s *string, c randfill.Continue) { *s = []string{"a", "b", "<c>", "d"}[c.Intn(4)] })
	narrow := 0
	for range 100 {
		old, new := &corev1.Pod{}, &corev1.Pod{}
		fill.Fill(old)
		fill.Fill(new)
		if r.IntN(2) == 0 {
			new.Spec = *old.Spec.DeepCopy()
		}
		old.TypeMeta, new.TypeMeta = metav1.TypeMeta{}, metav1.TypeMeta{}
		a, b := must(json.Marshal(old)), must(json.Marshal(new))
		o := stored.New(podKind, old)
		strategic := must(strategicpatch.CreateTwoWayMergePatch(a, b, &corev1.Pod{}))
		for _, body := range [][]byte{strategic, b} {
			for _, typ := range []types.PatchType{types.MergePatchType, types.StrategicMergePatchType} {
				if sameBothWays(t, o, typ, body) {
					narrow++
				}
			}
		}
	}
	if narrow < 200 {
		t.Errorf("only %d of 400 patches went the narrow way", narrow)
	}
}

func TestNarrowPatchesOfOddShapes(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"x": "y"}},
		Spec:   corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}, NodeName: "n"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: "Ready", Status: "True"}}}}
	for body, narrow := range map[string]bool{
		`{"status":null}`: true, `{"status":{}}`: true, `{"status":{"phase":null}}`: true, `{"status":5}`: true, `{"status":{"unheardOf":1}}`: true,
		`{"status":{"phase":"a","phase":"b"}}`: true, `{"status":{"conditions":[{"type":"Ready","$patch":"delete"}]}}`: true,
		`{"status":{"$patch":"replace","phase":"Failed"}}`: true, `{"metadata":{"labels":null}}`: true, `{"metadata":{"labels":{"x":null,"z":"1"}}}`: true,
		`{"spec":{"containers":[{"name":"d"}]}}`: true, `{"spec":{"$retainKeys":["nodeName"],"nodeName":"m"}}`: true, `{"spec":{"containers":null}}`: true,
		`{}`: false, `null`: false, `[]`: false, `5`: false, `{`: false, `{"$patch":"replace","status":{}}`: false, `{"Status":{}}`: false,
		`{"kind":"Pod","status":{}}`: false, `{"unheardOf":1}`: false,
	} {
		for _, typ := range []types.PatchType{types.MergePatchType, types.StrategicMergePatchType} {
			if got := sameBothWays(t, stored.New(podKind, pod.DeepCopy()), typ, []byte(body)); got != narrow {
				t.Errorf("%s %s: narrow %v", typ, body, got)
			}
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
