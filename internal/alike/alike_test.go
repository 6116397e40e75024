package alike_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/randfill"

	"github.com/yare-project/yare/internal/alike"
)

var sharer = alike.New[corev1.PodSpec]("NodeName")

func spec() corev1.PodSpec {
	return corev1.PodSpec{
		NodeName:                      "n1",
		TerminationGracePeriodSeconds: ptr.To[int64](30),
		NodeSelector:                  map[string]string{"disk": "ssd"},
		Tolerations:                   []corev1.Toleration{{Key: "k", Operator: corev1.TolerationOpExists, TolerationSeconds: ptr.To[int64](300)}},
		Containers: []corev1.Container{{
			Name: "c", Image: "i", Env: []corev1.EnvVar{{Name: "A", Value: "1"}},
			Resources:     corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("1Gi")}},
			LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(80)}}},
		}},
		Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: ptr.To(resource.MustParse("1Gi"))}}}},
	}
}

func TestEqualSpecsShareTheirMemory(t *testing.T) {
	a, b := spec(), spec()
	a.NodeName = "n2"
	if !sharer.Share(&a, &b) {
		t.Fatal("specs that differ in the node alone are not the same")
	}
	if a.NodeName != "n2" {
		t.Error("the field that is not looked at was changed")
	}
	if &a.Containers[0] != &b.Containers[0] || &a.Volumes[0] != &b.Volumes[0] || a.TerminationGracePeriodSeconds != b.TerminationGracePeriodSeconds ||
		reflect.ValueOf(a.NodeSelector).Pointer() != reflect.ValueOf(b.NodeSelector).Pointer() {
		t.Error("the specs do not share their memory")
	}
}

func TestWhatDiffersStaysApart(t *testing.T) {
	for name, change := range map[string]func(*corev1.PodSpec){
		"image":       func(s *corev1.PodSpec) { s.Containers[0].Image = "j" },
		"environment": func(s *corev1.PodSpec) { s.Containers[0].Env[0].Value = "2" },
		"request":     func(s *corev1.PodSpec) { s.Containers[0].Resources.Requests["cpu"] = resource.MustParse("101m") },
		"request's name": func(s *corev1.PodSpec) {
			s.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("100m"), "x/y": resource.MustParse("1Gi")}
		},
		"way of writing it": func(s *corev1.PodSpec) {
			s.Containers[0].Resources.Requests["memory"] = resource.MustParse("1073741824")
		},
		"port":       func(s *corev1.PodSpec) { s.Containers[0].LivenessProbe.HTTPGet.Port = intstr.FromString("80") },
		"empty list": func(s *corev1.PodSpec) { s.Containers[0].Ports = []corev1.ContainerPort{} },
		"one more":   func(s *corev1.PodSpec) { s.Containers = append(s.Containers, corev1.Container{}) },
	} {
		t.Run(name, func(t *testing.T) {
			a, b := spec(), spec()
			change(&a)
			want := a.DeepCopy()
			if sharer.Share(&a, &b) {
				t.Error("the specs count as the same")
			}
			if diff := cmp.Diff(*want, a); diff != "" {
				t.Error("sharing changed what the object says:\n" + diff)
			}
			if diff := cmp.Diff(spec(), b); diff != "" {
				t.Error("sharing changed the other object:\n" + diff)
			}
			if &a.Volumes[0] != &b.Volumes[0] {
				t.Error("the volumes, which are equal, are not shared")
			}
		})
	}
}

// TestAgreesWithReflection holds it to reflection, on random specs of which one leaf was changed or none.
func TestAgreesWithReflection(t *testing.T) {
	seed := rand.Uint64()
	defer func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	}()
	random := rand.New(rand.NewPCG(seed, 0))
	fill := randfill.NewWithSeed(int64(seed)).NilChance(0.5).NumElements(0, 2).MaxDepth(12).Funcs(
		func(q *resource.Quantity, c randfill.Continue) {
			*q = *resource.NewMilliQuantity(c.Int63n(4000), resource.DecimalSI)
		},
		func(v *intstr.IntOrString, c randfill.Continue) { *v = intstr.FromInt32(c.Int31n(9)) })
	for range 500 {
		var a corev1.PodSpec
		fill.Fill(&a)
		b := *a.DeepCopy()
		if !sharer.Share(&a, &b) {
			t.Fatalf("a copy is not the same:\n%+v", a)
		}
		a = *b.DeepCopy()
		disturb(random, reflect.ValueOf(&a).Elem())
		a.NodeName = b.NodeName
		if want, got := reflect.DeepEqual(a, b), sharer.Share(&a, &b); want != got {
			t.Fatalf("the same: %v by reflection, %v by sharing:\n%s", want, got, cmp.Diff(a, b))
		}
	}
}

// TestAgreesWithKubernetes holds Equal to the comparison that the API's users know.
func TestAgreesWithKubernetes(t *testing.T) {
	equal := alike.Equal[corev1.Pod]()
	seed := rand.Uint64()
	defer func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	}()
	random := rand.New(rand.NewPCG(seed, 0))
	fill := randfill.NewWithSeed(int64(seed)).NilChance(0.5).NumElements(0, 2).MaxDepth(12).Funcs(
		func(q *resource.Quantity, c randfill.Continue) {
			*q = *resource.NewMilliQuantity(c.Int63n(4000), resource.DecimalSI)
		},
		func(v *intstr.IntOrString, c randfill.Continue) { *v = intstr.FromInt32(c.Int31n(9)) },
		func(m *metav1.Time, c randfill.Continue) { *m = metav1.Unix(c.Int63n(1e9), 0) })
	for range 500 {
		var a corev1.Pod
		fill.Fill(&a)
		b := a.DeepCopy()
		empty(reflect.ValueOf(b).Elem())
		if !equal(&a, b) {
			t.Fatalf("nothing instead of an empty list makes a difference:\n%s", cmp.Diff(&a, b))
		}
		disturb(random, reflect.ValueOf(&a).Elem())
		if want, got := apiequality.Semantic.DeepEqual(&a, b), equal(&a, b); want != got {
			t.Fatalf("equal: %v to Kubernetes, %v here:\n%s", want, got, cmp.Diff(&a, b))
		}
	}
}

// empty makes nothing of all empty lists and maps in v that can be set.
func empty(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				empty(v.Field(i))
			}
		}
	case reflect.Pointer:
		if !v.IsNil() {
			empty(v.Elem())
		}
	case reflect.Slice, reflect.Map:
		if v.Len() == 0 {
			v.SetZero()
		}
		for i := 0; v.Kind() == reflect.Slice && i < v.Len(); i++ {
			empty(v.Index(i))
		}
	}
}

// disturb changes something in v, or nothing.
func disturb(r *rand.Rand, v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		disturb(r, v.Field(r.IntN(v.NumField())))
	case reflect.Pointer:
		if !v.IsNil() {
			disturb(r, v.Elem())
		}
	case reflect.Slice:
		if v.Len() > 0 {
			disturb(r, v.Index(r.IntN(v.Len())))
		}
	case reflect.String:
		if v.CanSet() {
			v.SetString(fmt.Sprint(r.Uint32()))
		}
	case reflect.Int32, reflect.Int64:
		if v.CanSet() {
			v.SetInt(v.Int() + 1)
		}
	}
}

func TestPartsAreComparedAlone(t *testing.T) {
	same := alike.EqualPart[corev1.Pod]("Spec", "NodeName")
	a, b := &corev1.Pod{Spec: spec()}, &corev1.Pod{Spec: spec()}
	a.Name, a.Status.Phase, a.Spec.NodeName = "other", corev1.PodRunning, "other"
	if !same(a, b) {
		t.Error("what is not compared makes a difference")
	}
	if b.Spec.Containers[0].Image = "j"; same(a, b) {
		t.Error("specs with different images are the same")
	}
}

func TestTimesAreComparedAsTimes(t *testing.T) {
	meta := alike.New[metav1.ObjectMeta]("ManagedFields")
	at := time.Unix(1e9, 0)
	a, b := metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(at)}, metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(at.UTC())}
	b.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}}
	if !meta.Same(&a, &b) {
		t.Error("one time in two zones is not the same")
	}
	if b.DeletionTimestamp = &b.CreationTimestamp; meta.Same(&a, &b) {
		t.Error("a deletion makes no difference")
	}
}

func BenchmarkShare(b *testing.B) {
	x, y := spec(), spec()
	fresh := x
	b.ReportAllocs()
	b.ReportMetric(float64(unsafe.Sizeof(x)), "B/spec")
	for b.Loop() {
		x = fresh
		if !sharer.Share(&x, &y) {
			b.Fatal("not the same")
		}
	}
}
